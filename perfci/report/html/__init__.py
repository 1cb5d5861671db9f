"""The page of a report: `page` renders it, `markup` escapes. Beside them the templates, style.css and page.js."""

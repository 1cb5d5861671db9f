"""The page of a report: `page` renders it, `markup` escapes; beside them the templates, style.css and page.js."""

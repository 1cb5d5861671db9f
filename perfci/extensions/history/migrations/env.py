"""Alembic runs this. `perfci.extensions.history.database` gives the connection."""

from alembic import context

context.configure(connection=context.config.attributes["connection"])
with context.begin_transaction():
    context.run_migrations()

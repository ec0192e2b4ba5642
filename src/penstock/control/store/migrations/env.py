"""Run by alembic: migrates on the connection, and in the transaction, that it is given."""

from alembic import context

from penstock.control.store.schema import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    transactional_ddl=False,  # The one transaction around is the caller's.
    compare_type=True,
    render_as_batch=True,
)
context.run_migrations()

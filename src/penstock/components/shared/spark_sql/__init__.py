"""SQL of users on its way to Spark: judged by what Spark has understood, before any of it is looked up or run.

Text that a user has written becomes SQL by `expression` and `queried` alone. The tables say of each function, plan and
expression of Spark whether SQL may use it; whatever is in none of them is refused.
"""

from penstock.components.shared.spark_sql.reading import SqlRefused, expression, judge_frame, queried
from penstock.components.shared.spark_sql.verdict import By

__all__ = ["By", "SqlRefused", "expression", "judge_frame", "queried"]

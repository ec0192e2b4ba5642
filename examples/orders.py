"""Paid orders, one row per item sold, as Parquet: the pipeline of orders.yaml in Python."""

import penstock as ps

orders_schema = {
    "id": "string",
    "ts": "timestamp",
    "customer": "string",
    "country": "string",
    "status": "string",
    "items": "array<struct<sku:string,price:decimal(10,2),quantity:int>>",
}
sold_query = """\
SELECT id, ts, customer, country, item.sku, item.quantity,
       CAST(item.price * item.quantity AS DECIMAL(12, 2)) AS amount
FROM paid LATERAL VIEW explode(items) AS item"""

pipeline = ps.Pipeline(
    "orders",
    labels={"example": "orders"},
    dead_letters=ps.sinks.Files(path="./out/orders-dead", format="json"),
)
orders = pipeline.source(
    "orders",
    ps.sources.Files(path="./data/orders", pattern="*.json"),
    format=ps.formats.Json(schema=orders_schema),
)
paid = orders.step("paid", ps.steps.Filter(where="status = 'paid'"))
sold = paid.sql("sold", sold_query)
sold.to("sold_items", ps.sinks.Files(path="./out/orders", partition_by=["country"]))

lamp = {"sku": "lamp", "price": 39.90, "quantity": 1}
bulbs = {"sku": "bulb", "price": 4.50, "quantity": 3}
whole = {"id": "a", "ts": "2024-01-01T00:00:00Z", "customer": "ann", "country": "DE"}
pipeline.test(
    "gives one row per item of a paid order",
    given={orders: [{**whole, "status": "paid", "items": [lamp, bulbs]}]},
    expect={
        "sold_items": [
            {"id": "a", "sku": "lamp", "quantity": 1, "amount": 39.90},
            {"id": "a", "sku": "bulb", "quantity": 3, "amount": 13.50},
        ]
    },
)
pipeline.test(
    "leaves out orders that were not paid or hold nothing",
    given={
        orders: [
            {"id": "a", "status": "cancelled", "items": [lamp]},
            {"id": "b", "status": "paid", "items": []},
        ]
    },
    expect={paid: [{"id": "b"}], "sold_items": []},
)

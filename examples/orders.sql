-- Paid orders, one row per item sold, as Parquet: the pipeline of orders.yaml with its queries in SQL.
/* penstock
name: orders
labels: {example: orders}
sources:
  orders:
    files: {path: ./data/orders, pattern: "*.json"}
    format:
      json:
        schema:
          id: string
          ts: timestamp
          customer: string
          country: string
          status: string
          items: array<struct<sku:string,price:decimal(10,2),quantity:int>>
steps:
  paid:
    from: orders
    filter: status = 'paid'
sinks:
  sold_items:
    files: {path: ./out/orders, partitionBy: [country]}
deadLetters:
  files: {path: ./out/orders-dead, format: json}
tests:
  - name: gives one row per item of a paid order
    given:
      orders:
        - id: a
          ts: "2024-01-01T00:00:00Z"
          customer: ann
          country: DE
          status: paid
          items: [{sku: lamp, price: 39.90, quantity: 1}, {sku: bulb, price: 4.50, quantity: 3}]
    expect:
      sold_items:
        - {id: a, sku: lamp, quantity: 1, amount: 39.90}
        - {id: a, sku: bulb, quantity: 3, amount: 13.50}
  - name: leaves out orders that were not paid or hold nothing
    given:
      orders:
        - {id: a, status: cancelled, items: [{sku: lamp, price: 39.90, quantity: 1}]}
        - {id: b, status: paid, items: []}
    expect:
      paid: [{id: b}]
      sold_items: []
*/

CREATE VIEW sold AS
SELECT id, ts, customer, country, item.sku, item.quantity,
       CAST(item.price * item.quantity AS DECIMAL(12, 2)) AS amount
FROM paid LATERAL VIEW explode(items) AS item;

INSERT INTO sold_items TABLE sold;

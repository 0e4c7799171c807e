CREATE TABLE products (
    sku TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    category TEXT NOT NULL,
    price_cents INTEGER NOT NULL
);
INSERT INTO products VALUES
    ('PEN-01', 'Ballpoint pen', 'writing', 149),
    ('PEN-02', 'Fountain pen', 'writing', 2495),
    ('INK-01', 'Ink, blue, 50 ml', 'writing', 799),
    ('PAP-A4', 'Paper A4, 500 sheets', 'paper', 589),
    ('PAP-NB', 'Notebook, squared', 'paper', 350),
    ('BAG-01', 'Pencil case', 'bags', 1290);

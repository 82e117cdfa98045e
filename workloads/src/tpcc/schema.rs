//! The nine tables of clause 1.3, and the consistency conditions of clause 3.3.2.

pub(crate) const TABLES: &[&str] = &[
    "warehouse",
    "district",
    "customer",
    "history",
    "new_order",
    "orders",
    "order_line",
    "item",
    "stock",
];

/// Warehouses and districts are updated by every request: room on their pages keeps new versions
/// out of the indexes.
pub(crate) const SCHEMA: &str = "
CREATE TABLE warehouse (
    w_id       integer NOT NULL,
    w_name     varchar(10) NOT NULL,
    w_street_1 varchar(20) NOT NULL,
    w_street_2 varchar(20) NOT NULL,
    w_city     varchar(20) NOT NULL,
    w_state    char(2) NOT NULL,
    w_zip      char(9) NOT NULL,
    w_tax      numeric(4, 4) NOT NULL,
    w_ytd      numeric(12, 2) NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE district (
    d_id        integer NOT NULL,
    d_w_id      integer NOT NULL,
    d_name      varchar(10) NOT NULL,
    d_street_1  varchar(20) NOT NULL,
    d_street_2  varchar(20) NOT NULL,
    d_city      varchar(20) NOT NULL,
    d_state     char(2) NOT NULL,
    d_zip       char(9) NOT NULL,
    d_tax       numeric(4, 4) NOT NULL,
    d_ytd       numeric(12, 2) NOT NULL,
    d_next_o_id integer NOT NULL
) WITH (fillfactor = 20);
CREATE TABLE customer (
    c_id           integer NOT NULL,
    c_d_id         integer NOT NULL,
    c_w_id         integer NOT NULL,
    c_first        varchar(16) NOT NULL,
    c_middle       char(2) NOT NULL,
    c_last         varchar(16) NOT NULL,
    c_street_1     varchar(20) NOT NULL,
    c_street_2     varchar(20) NOT NULL,
    c_city         varchar(20) NOT NULL,
    c_state        char(2) NOT NULL,
    c_zip          char(9) NOT NULL,
    c_phone        char(16) NOT NULL,
    c_since        timestamptz NOT NULL,
    c_credit       char(2) NOT NULL,
    c_credit_lim   numeric(12, 2) NOT NULL,
    c_discount     numeric(4, 4) NOT NULL,
    c_balance      numeric(12, 2) NOT NULL,
    c_ytd_payment  numeric(12, 2) NOT NULL,
    c_payment_cnt  integer NOT NULL,
    c_delivery_cnt integer NOT NULL,
    c_data         varchar(500) NOT NULL
);
CREATE TABLE history (
    h_c_id   integer NOT NULL,
    h_c_d_id integer NOT NULL,
    h_c_w_id integer NOT NULL,
    h_d_id   integer NOT NULL,
    h_w_id   integer NOT NULL,
    h_date   timestamptz NOT NULL,
    h_amount numeric(6, 2) NOT NULL,
    h_data   varchar(24) NOT NULL
);
CREATE TABLE new_order (
    no_o_id integer NOT NULL,
    no_d_id integer NOT NULL,
    no_w_id integer NOT NULL
);
CREATE TABLE orders (
    o_id         integer NOT NULL,
    o_d_id       integer NOT NULL,
    o_w_id       integer NOT NULL,
    o_c_id       integer NOT NULL,
    o_entry_d    timestamptz NOT NULL,
    o_carrier_id integer,
    o_ol_cnt     integer NOT NULL,
    o_all_local  integer NOT NULL
);
CREATE TABLE order_line (
    ol_o_id        integer NOT NULL,
    ol_d_id        integer NOT NULL,
    ol_w_id        integer NOT NULL,
    ol_number      integer NOT NULL,
    ol_i_id        integer NOT NULL,
    ol_supply_w_id integer NOT NULL,
    ol_delivery_d  timestamptz,
    ol_quantity    integer NOT NULL,
    ol_amount      numeric(6, 2) NOT NULL,
    ol_dist_info   char(24) NOT NULL
);
CREATE TABLE item (
    i_id    integer NOT NULL,
    i_im_id integer NOT NULL,
    i_name  varchar(24) NOT NULL,
    i_price numeric(5, 2) NOT NULL,
    i_data  varchar(50) NOT NULL
);
CREATE TABLE stock (
    s_i_id       integer NOT NULL,
    s_w_id       integer NOT NULL,
    s_quantity   integer NOT NULL,
    s_dist_01    char(24) NOT NULL,
    s_dist_02    char(24) NOT NULL,
    s_dist_03    char(24) NOT NULL,
    s_dist_04    char(24) NOT NULL,
    s_dist_05    char(24) NOT NULL,
    s_dist_06    char(24) NOT NULL,
    s_dist_07    char(24) NOT NULL,
    s_dist_08    char(24) NOT NULL,
    s_dist_09    char(24) NOT NULL,
    s_dist_10    char(24) NOT NULL,
    s_ytd        integer NOT NULL,
    s_order_cnt  integer NOT NULL,
    s_remote_cnt integer NOT NULL,
    s_data       varchar(50) NOT NULL
);
";

pub(crate) const INDEXES: &str = "
ALTER TABLE warehouse ADD PRIMARY KEY (w_id);
ALTER TABLE district ADD PRIMARY KEY (d_w_id, d_id);
ALTER TABLE customer ADD PRIMARY KEY (c_w_id, c_d_id, c_id);
CREATE INDEX customer_name ON customer (c_w_id, c_d_id, c_last, c_first);
ALTER TABLE new_order ADD PRIMARY KEY (no_w_id, no_d_id, no_o_id);
ALTER TABLE orders ADD PRIMARY KEY (o_w_id, o_d_id, o_id);
CREATE INDEX orders_customer ON orders (o_w_id, o_d_id, o_c_id, o_id);
ALTER TABLE order_line ADD PRIMARY KEY (ol_w_id, ol_d_id, ol_o_id, ol_number);
ALTER TABLE item ADD PRIMARY KEY (i_id);
ALTER TABLE stock ADD PRIMARY KEY (s_w_id, s_i_id);
";

pub(crate) const CHECKS: &[(&str, &str)] = &[
    (
        "condition 1: a warehouse's year-to-date balance is the sum of its districts'",
        "SELECT format('warehouse %s: %s, its districts: %s', w_id, w_ytd, d.ytd)
           FROM warehouse JOIN (SELECT d_w_id, sum(d_ytd) AS ytd FROM district GROUP BY d_w_id) d ON d_w_id = w_id
          WHERE w_ytd <> d.ytd ORDER BY w_id",
    ),
    (
        "condition 2: a district's next order follows its last order and its last new order",
        "SELECT format('district %s/%s: next %s, last order %s, last new order %s', d_w_id, d_id, d_next_o_id, o.last, n.last)
           FROM district
           LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last FROM orders GROUP BY 1, 2) o ON o_w_id = d_w_id AND o_d_id = d_id
           LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last FROM new_order GROUP BY 1, 2) n ON no_w_id = d_w_id AND no_d_id = d_id
          WHERE (d_next_o_id - 1) IS DISTINCT FROM o.last OR (d_next_o_id - 1) IS DISTINCT FROM n.last ORDER BY d_w_id, d_id",
    ),
    (
        "condition 3: a district's new orders have consecutive numbers",
        "SELECT format('district %s/%s: %s new orders from %s to %s', no_w_id, no_d_id, count(*), min(no_o_id), max(no_o_id))
           FROM new_order GROUP BY no_w_id, no_d_id
         HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*) ORDER BY no_w_id, no_d_id",
    ),
    (
        "condition 4: a district's orders have as many lines as they say",
        "SELECT format('district %s/%s: %s lines said, %s there', o_w_id, o_d_id, o.said, l.there)
           FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY 1, 2) o
           FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS there FROM order_line GROUP BY 1, 2) l
             ON ol_w_id = o_w_id AND ol_d_id = o_d_id
          WHERE o.said IS DISTINCT FROM l.there ORDER BY o_w_id, o_d_id",
    ),
];

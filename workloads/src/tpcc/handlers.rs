use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::Type;

use crate::database::{Cx, Sql};
use crate::service::{Call, Failure, Handled, Reply, column};

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NewOrder {
    pub w_id: i32,
    pub d_id: i32,
    pub c_id: i32,
    /// The transaction's time where it is missing.
    #[serde(default)]
    pub entry_d: Option<String>,
    pub lines: Vec<Line>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    pub i_id: i32,
    pub supply_w_id: i32,
    pub quantity: i32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Payment {
    pub w_id: i32,
    pub d_id: i32,
    pub c_w_id: i32,
    pub c_d_id: i32,
    /// One of the two names the customer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub c_id: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub c_last: Option<String>,
    /// Money is in cents here and in answers.
    pub amount_cents: i64,
    #[serde(default)]
    pub date: Option<String>,
}

/// The answer to [`NewOrder`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Ordered {
    pub w_id: i32,
    pub d_id: i32,
    pub o_id: i32,
    pub c_id: i32,
    pub c_last: String,
    pub c_credit: String,
    pub c_discount: f64,
    pub w_tax: f64,
    pub d_tax: f64,
    pub total_cents: i64,
    pub lines: Vec<OrderedLine>,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct OrderedLine {
    pub i_id: i32,
    pub i_name: String,
    pub supply_w_id: i32,
    pub quantity: i32,
    pub s_quantity: i32,
    pub brand_generic: char,
    pub price_cents: i64,
    pub amount_cents: i64,
}

/// The answer to [`Payment`].
#[derive(Debug, Serialize, Deserialize)]
pub struct Paid {
    pub w_id: i32,
    pub warehouse: [String; 5],
    pub d_id: i32,
    pub district: [String; 5],
    pub c_id: i32,
    pub c_first: String,
    pub c_middle: String,
    pub c_last: String,
    pub customer: [String; 5],
    pub c_phone: String,
    pub c_credit: String,
    pub c_credit_lim_cents: i64,
    pub c_discount: f64,
    pub c_balance_cents: i64,
    /// The first 200 characters of a bad creditor's file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub c_data: Option<String>,
}

static CUSTOMER_AND_WAREHOUSE: Sql = Sql::new(
    "SELECT c_discount::float8, c_last, c_credit, w_tax::float8 FROM customer, warehouse \
      WHERE w_id = $1 AND c_w_id = w_id AND c_d_id = $2 AND c_id = $3",
    &[Type::INT4, Type::INT4, Type::INT4],
);
static NEXT_ORDER: Sql = Sql::new(
    "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2 \
     RETURNING d_next_o_id - 1, d_tax::float8",
    &[Type::INT4, Type::INT4],
);
static INSERT_ORDER: Sql = Sql::new(
    "INSERT INTO orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local) \
     VALUES ($1, $2, $3, $4, coalesce($5::text::timestamptz, now()), $6, $7)",
    &[
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::TEXT,
        Type::INT4,
        Type::INT4,
    ],
);
static INSERT_NEW_ORDER: Sql = Sql::new(
    "INSERT INTO new_order (no_o_id, no_d_id, no_w_id) VALUES ($1, $2, $3)",
    &[Type::INT4, Type::INT4, Type::INT4],
);
static ITEM: Sql = Sql::new(
    "SELECT (i_price * 100)::bigint, i_name, i_data FROM item WHERE i_id = $1",
    &[Type::INT4],
);
static STOCK: Sql = Sql::new(
    "SELECT s_quantity, s_data, \
            (ARRAY[s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, \
                   s_dist_06, s_dist_07, s_dist_08, s_dist_09, s_dist_10])[$3] \
       FROM stock WHERE s_w_id = $1 AND s_i_id = $2",
    &[Type::INT4, Type::INT4, Type::INT4],
);
static UPDATE_STOCK: Sql = Sql::new(
    "UPDATE stock SET s_quantity = sold.quantity, s_ytd = s_ytd + sold.ordered, \
            s_order_cnt = s_order_cnt + sold.orders, s_remote_cnt = s_remote_cnt + sold.remote \
       FROM unnest($1::int[], $2::int[], $3::int[], $4::int[], $5::int[], $6::int[]) \
            AS sold (w_id, i_id, quantity, ordered, orders, remote) \
      WHERE s_w_id = sold.w_id AND s_i_id = sold.i_id",
    &[
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
    ],
);
static INSERT_LINES: Sql = Sql::new(
    "INSERT INTO order_line (ol_o_id, ol_d_id, ol_w_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_dist_info) \
     SELECT $1, $2, $3, line.number, line.i_id, line.supply_w_id, line.quantity, line.cents / 100.0, line.dist_info \
       FROM unnest($4::int[], $5::int[], $6::int[], $7::int[], $8::bigint[], $9::text[]) \
            AS line (number, i_id, supply_w_id, quantity, cents, dist_info)",
    &[
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT4_ARRAY,
        Type::INT8_ARRAY,
        Type::TEXT_ARRAY,
    ],
);

static PAY_WAREHOUSE: Sql = Sql::new(
    "UPDATE warehouse SET w_ytd = w_ytd + $2 / 100.0 WHERE w_id = $1",
    &[Type::INT4, Type::INT8],
);
static WAREHOUSE: Sql = Sql::new(
    "SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse WHERE w_id = $1",
    &[Type::INT4],
);
static PAY_DISTRICT: Sql = Sql::new(
    "UPDATE district SET d_ytd = d_ytd + $3 / 100.0 WHERE d_w_id = $1 AND d_id = $2",
    &[Type::INT4, Type::INT4, Type::INT8],
);
static DISTRICT: Sql = Sql::new(
    "SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district WHERE d_w_id = $1 AND d_id = $2",
    &[Type::INT4, Type::INT4],
);
static NAMESAKES: Sql = Sql::new(
    "SELECT count(*) FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3",
    &[Type::INT4, Type::INT4, Type::VARCHAR],
);
static CUSTOMER_BY_NAME: Sql = Sql::new(
    "SELECT c_street_1, c_street_2, c_city, c_state, c_zip, c_id, c_first, c_middle, c_last, c_phone, c_credit, \
            (c_credit_lim * 100)::bigint, c_discount::float8, (c_balance * 100)::bigint, c_data \
       FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first, c_id OFFSET $4 LIMIT 1",
    &[Type::INT4, Type::INT4, Type::VARCHAR, Type::INT8],
);
static CUSTOMER_BY_ID: Sql = Sql::new(
    "SELECT c_street_1, c_street_2, c_city, c_state, c_zip, c_id, c_first, c_middle, c_last, c_phone, c_credit, \
            (c_credit_lim * 100)::bigint, c_discount::float8, (c_balance * 100)::bigint, c_data \
       FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    &[Type::INT4, Type::INT4, Type::INT4],
);
static PAY_CUSTOMER: Sql = Sql::new(
    "UPDATE customer SET c_balance = c_balance - $4 / 100.0, c_ytd_payment = c_ytd_payment + $4 / 100.0, \
            c_payment_cnt = c_payment_cnt + 1, c_data = coalesce($5, c_data) \
      WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3",
    &[
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::INT8,
        Type::VARCHAR,
    ],
);
static INSERT_HISTORY: Sql = Sql::new(
    "INSERT INTO history (h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_date, h_amount, h_data) \
     VALUES ($1, $2, $3, $4, $5, coalesce($6::text::timestamptz, now()), $7 / 100.0, $8)",
    &[
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::INT4,
        Type::TEXT,
        Type::INT8,
        Type::VARCHAR,
    ],
);

pub(crate) async fn handle(cx: Cx<'_>, call: &Call<'_>) -> Handled {
    match (call.method, call.path) {
        (&Method::POST, ["tpcc", "new-order"]) => {
            let wish: NewOrder = call.body()?;
            check(&wish)?;
            Reply::created(&cx.retrying(|| new_order(cx, &wish)).await?).map(Some)
        }
        (&Method::POST, ["tpcc", "payment"]) => {
            let wish: Payment = call.body()?;
            if !(1..=999_999).contains(&wish.amount_cents) {
                return Err(Failure::Invalid("a payment is of 0.01 to 9999.99".into()));
            }
            Reply::created(&cx.retrying(|| payment(cx, &wish)).await?).map(Some)
        }
        _ => Ok(None),
    }
}

fn check(wish: &NewOrder) -> Result<(), Failure> {
    if !(1..=15).contains(&wish.lines.len()) {
        return Err(Failure::Invalid("an order has 1 to 15 lines".into()));
    }
    if wish
        .lines
        .iter()
        .any(|line| !(1..=10).contains(&line.quantity))
    {
        return Err(Failure::Invalid("a line orders 1 to 10 of its item".into()));
    }
    Ok(())
}

/// What an order takes from one row of stock. An item may stand on several lines.
#[derive(Default)]
struct Sold {
    quantity: i32,
    ordered: i32,
    orders: i32,
    remote: i32,
}

async fn new_order(cx: Cx<'_>, wish: &NewOrder) -> Result<Ordered, Failure> {
    let NewOrder {
        w_id, d_id, c_id, ..
    } = *wish;
    let mut transaction = cx.begin().await?;
    let Some(customer) = transaction
        .query_first(&CUSTOMER_AND_WAREHOUSE, &[&w_id, &d_id, &c_id])
        .await?
    else {
        transaction.rollback().await?;
        return Err(Failure::NotFound(format!(
            "no customer {c_id} in district {w_id}/{d_id}"
        )));
    };
    let district = transaction.query_one(&NEXT_ORDER, &[&w_id, &d_id]).await?;
    let o_id: i32 = column(&district, 0)?;
    let line_count = wish.lines.len() as i32;
    let all_local = i32::from(wish.lines.iter().all(|line| line.supply_w_id == w_id));
    transaction
        .execute(
            &INSERT_ORDER,
            &[
                &o_id,
                &d_id,
                &w_id,
                &c_id,
                &wish.entry_d,
                &line_count,
                &all_local,
            ],
        )
        .await?;
    transaction
        .execute(&INSERT_NEW_ORDER, &[&o_id, &d_id, &w_id])
        .await?;

    let mut lines = Vec::with_capacity(wish.lines.len());
    let mut dist_infos: Vec<String> = Vec::with_capacity(wish.lines.len());
    // In key order: two orders that take from the same rows then wait for each other in one
    // direction only.
    let mut sold: BTreeMap<(i32, i32), Sold> = BTreeMap::new();
    for line in &wish.lines {
        let Some(item) = transaction.query_first(&ITEM, &[&line.i_id]).await? else {
            transaction.rollback().await?;
            return Err(Failure::RolledBack(format!(
                "item number {} is not valid",
                line.i_id
            )));
        };
        let stock = transaction
            .query_first(&STOCK, &[&line.supply_w_id, &line.i_id, &d_id])
            .await?;
        let Some(stock) = stock else {
            transaction.rollback().await?;
            return Err(Failure::NotFound(format!(
                "no item {} in warehouse {}",
                line.i_id, line.supply_w_id
            )));
        };
        let taken = sold.entry((line.supply_w_id, line.i_id)).or_insert(Sold {
            quantity: column(&stock, 0)?,
            ..Sold::default()
        });
        taken.quantity -= line.quantity;
        if taken.quantity < 10 {
            taken.quantity += 91;
        }
        taken.ordered += line.quantity;
        taken.orders += 1;
        taken.remote += i32::from(line.supply_w_id != w_id);

        let price_cents: i64 = column(&item, 0)?;
        let original = |data: &str| data.contains("ORIGINAL");
        let branded = original(column(&item, 2)?) && original(column(&stock, 1)?);
        dist_infos.push(column(&stock, 2)?);
        lines.push(OrderedLine {
            i_id: line.i_id,
            i_name: column(&item, 1)?,
            supply_w_id: line.supply_w_id,
            quantity: line.quantity,
            s_quantity: taken.quantity,
            brand_generic: if branded { 'B' } else { 'G' },
            price_cents,
            amount_cents: price_cents * i64::from(line.quantity),
        });
    }

    let (mut warehouses, mut items, mut quantities) = (Vec::new(), Vec::new(), Vec::new());
    let (mut ordered, mut orders, mut remote) = (Vec::new(), Vec::new(), Vec::new());
    for ((warehouse, item), taken) in sold {
        warehouses.push(warehouse);
        items.push(item);
        quantities.push(taken.quantity);
        ordered.push(taken.ordered);
        orders.push(taken.orders);
        remote.push(taken.remote);
    }
    transaction
        .execute(
            &UPDATE_STOCK,
            &[&warehouses, &items, &quantities, &ordered, &orders, &remote],
        )
        .await?;

    let numbers: Vec<i32> = (1..=line_count).collect();
    let of = |field: fn(&OrderedLine) -> i32| lines.iter().map(field).collect::<Vec<i32>>();
    let amounts: Vec<i64> = lines.iter().map(|line| line.amount_cents).collect();
    transaction
        .execute(
            &INSERT_LINES,
            &[
                &o_id,
                &d_id,
                &w_id,
                &numbers,
                &of(|line| line.i_id),
                &of(|line| line.supply_w_id),
                &of(|line| line.quantity),
                &amounts,
                &dist_infos,
            ],
        )
        .await?;
    transaction.commit().await?;

    let (c_discount, w_tax): (f64, f64) = (column(&customer, 0)?, column(&customer, 3)?);
    let d_tax: f64 = column(&district, 1)?;
    let sum = amounts.iter().sum::<i64>() as f64;
    Ok(Ordered {
        w_id,
        d_id,
        o_id,
        c_id,
        c_last: column(&customer, 1)?,
        c_credit: column(&customer, 2)?,
        c_discount,
        w_tax,
        d_tax,
        total_cents: (sum * (1.0 - c_discount) * (1.0 + w_tax + d_tax)).round() as i64,
        lines,
    })
}

async fn payment(cx: Cx<'_>, wish: &Payment) -> Result<Paid, Failure> {
    let Payment {
        w_id,
        d_id,
        c_w_id,
        c_d_id,
        amount_cents,
        ..
    } = *wish;
    let mut transaction = cx.begin().await?;
    if transaction
        .execute(&PAY_WAREHOUSE, &[&w_id, &amount_cents])
        .await?
        == 0
    {
        transaction.rollback().await?;
        return Err(Failure::NotFound(format!("no warehouse {w_id}")));
    }
    let warehouse = transaction.query_one(&WAREHOUSE, &[&w_id]).await?;
    if transaction
        .execute(&PAY_DISTRICT, &[&w_id, &d_id, &amount_cents])
        .await?
        == 0
    {
        transaction.rollback().await?;
        return Err(Failure::NotFound(format!("no district {w_id}/{d_id}")));
    }
    let district = transaction.query_one(&DISTRICT, &[&w_id, &d_id]).await?;

    let customer = match (wish.c_id, &wish.c_last) {
        (Some(c_id), None) => {
            transaction
                .query_first(&CUSTOMER_BY_ID, &[&c_w_id, &c_d_id, &c_id])
                .await?
        }
        (None, Some(c_last)) => {
            let namesakes = transaction
                .query_one(&NAMESAKES, &[&c_w_id, &c_d_id, c_last])
                .await?;
            // The one in the middle, rounded up, counted from zero.
            let middle = (column::<i64>(&namesakes, 0)? + 1) / 2 - 1;
            transaction
                .query_first(
                    &CUSTOMER_BY_NAME,
                    &[&c_w_id, &c_d_id, c_last, &middle.max(0)],
                )
                .await?
        }
        _ => {
            transaction.rollback().await?;
            return Err(Failure::Invalid(
                "a payment names its customer by c_id or by c_last".into(),
            ));
        }
    };
    let Some(customer) = customer else {
        transaction.rollback().await?;
        return Err(Failure::NotFound(format!(
            "no such customer in district {c_w_id}/{c_d_id}"
        )));
    };
    let c_id: i32 = column(&customer, 5)?;
    let c_credit: String = column(&customer, 10)?;
    let file = if c_credit == "BC" {
        let before: &str = column(&customer, 14)?;
        let mut file = format!("{c_id} {c_d_id} {c_w_id} {d_id} {w_id} {amount_cents}|{before}");
        file.truncate(500);
        Some(file)
    } else {
        None
    };
    transaction
        .execute(
            &PAY_CUSTOMER,
            &[&c_w_id, &c_d_id, &c_id, &amount_cents, &file],
        )
        .await?;
    let (w_name, d_name): (&str, &str) = (column(&warehouse, 5)?, column(&district, 5)?);
    let h_data = format!("{w_name}    {d_name}");
    transaction
        .execute(
            &INSERT_HISTORY,
            &[
                &c_id,
                &c_d_id,
                &c_w_id,
                &d_id,
                &w_id,
                &wish.date,
                &amount_cents,
                &h_data,
            ],
        )
        .await?;
    transaction.commit().await?;

    let address = |row| -> Result<[String; 5], Failure> {
        Ok([
            column(row, 0)?,
            column(row, 1)?,
            column(row, 2)?,
            column(row, 3)?,
            column(row, 4)?,
        ])
    };
    Ok(Paid {
        w_id,
        warehouse: address(&warehouse)?,
        d_id,
        district: address(&district)?,
        c_id,
        c_first: column(&customer, 6)?,
        c_middle: column(&customer, 7)?,
        c_last: column(&customer, 8)?,
        customer: address(&customer)?,
        c_phone: column(&customer, 9)?,
        c_credit,
        c_credit_lim_cents: column(&customer, 11)?,
        c_discount: column(&customer, 12)?,
        c_balance_cents: column::<i64>(&customer, 13)? - amount_cents,
        c_data: file.map(|mut file| {
            file.truncate(200);
            file
        }),
    })
}

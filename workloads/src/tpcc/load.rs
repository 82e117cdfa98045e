//! The initial population of clause 4.3.3.

use super::schema::INDEXES;
use super::{C_LAST_LOADING, last_name, nurand};
use crate::load::{LoadError, Loader, Rows};
use crate::random::Random;
use crate::workload::TpccSize;

/// Everything happened then, so that two loads are equal.
const THEN: &str = "2024-01-01T00:00:00Z";

pub(crate) async fn load(
    loader: &Loader<'_>,
    size: TpccSize,
    random: &mut Random,
) -> Result<(), LoadError> {
    items(loader, size, random).await?;
    warehouses(loader, size, random).await?;
    stock(loader, size, random).await?;
    customers(loader, size, random).await?;
    orders(loader, size, random).await?;
    loader.run(INDEXES).await
}

async fn items(loader: &Loader<'_>, size: TpccSize, random: &mut Random) -> Result<(), LoadError> {
    let mut rows = loader.copy("item").await?;
    for item in 1..=size.items {
        rows.integer(item)
            .integer(random.between(1, 10_000))
            .text(&random.alphanumeric(14, 24));
        rows.cents(random.between(100, 10_000)).text(&data(random));
        rows.end().await?;
    }
    rows.finish().await?;
    Ok(())
}

async fn warehouses(
    loader: &Loader<'_>,
    size: TpccSize,
    random: &mut Random,
) -> Result<(), LoadError> {
    let mut rows = loader.copy("warehouse").await?;
    for warehouse in 1..=size.warehouses {
        rows.integer(warehouse).text(&random.alphanumeric(6, 10));
        address(&mut rows, random);
        rows.rate(random.between(0, 2_000)).cents(30_000_000);
        rows.end().await?;
    }
    rows.finish().await?;

    let mut rows = loader.copy("district").await?;
    for warehouse in 1..=size.warehouses {
        for district in 1..=10 {
            rows.integer(district)
                .integer(warehouse)
                .text(&random.alphanumeric(6, 10));
            address(&mut rows, random);
            rows.rate(random.between(0, 2_000))
                .cents(3_000_000)
                .integer(size.customers_per_district + 1);
            rows.end().await?;
        }
    }
    rows.finish().await?;
    Ok(())
}

async fn stock(loader: &Loader<'_>, size: TpccSize, random: &mut Random) -> Result<(), LoadError> {
    let mut rows = loader.copy("stock").await?;
    for warehouse in 1..=size.warehouses {
        for item in 1..=size.items {
            rows.integer(item)
                .integer(warehouse)
                .integer(random.between(10, 100));
            for _ in 0..10 {
                rows.text(&random.alphanumeric(24, 24));
            }
            rows.integer(0).integer(0).integer(0).text(&data(random));
            rows.end().await?;
        }
    }
    rows.finish().await?;
    Ok(())
}

async fn customers(
    loader: &Loader<'_>,
    size: TpccSize,
    random: &mut Random,
) -> Result<(), LoadError> {
    let mut rows = loader.copy("customer").await?;
    for (warehouse, district) in districts(size) {
        for customer in 1..=i64::from(size.customers_per_district) {
            let name = if customer <= 1_000 {
                customer - 1
            } else {
                nurand(random, 255, C_LAST_LOADING, 0, 999)
            };
            rows.integer(customer).integer(district).integer(warehouse);
            rows.text(&random.alphanumeric(8, 16))
                .text("OE")
                .text(&last_name(name));
            address(&mut rows, random);
            rows.text(&random.digits(16))
                .text(THEN)
                .text(if random.chance(0.1) { "BC" } else { "GC" });
            rows.cents(5_000_000)
                .rate(random.between(0, 5_000))
                .cents(-1_000)
                .cents(1_000)
                .integer(1)
                .integer(0);
            rows.text(&random.alphanumeric(300, 500));
            rows.end().await?;
        }
    }
    rows.finish().await?;

    let mut rows = loader.copy("history").await?;
    for (warehouse, district) in districts(size) {
        for customer in 1..=size.customers_per_district {
            rows.integer(customer)
                .integer(district)
                .integer(warehouse)
                .integer(district)
                .integer(warehouse);
            rows.text(THEN)
                .cents(1_000)
                .text(&random.alphanumeric(12, 24));
            rows.end().await?;
        }
    }
    rows.finish().await?;
    Ok(())
}

/// One order per customer in random order; the last three in ten are not delivered yet.
async fn orders(loader: &Loader<'_>, size: TpccSize, random: &mut Random) -> Result<(), LoadError> {
    let per_district = size.customers_per_district;
    let delivered = per_district - per_district * 3 / 10;
    let mut line_counts = Vec::new();

    let mut rows = loader.copy("orders").await?;
    for (warehouse, district) in districts(size) {
        let mut customers: Vec<i32> = (1..=per_district).collect();
        random.shuffle(&mut customers);
        for (order, customer) in (1..).zip(customers) {
            let lines = random.between(5, 15);
            line_counts.push(lines);
            rows.integer(order)
                .integer(district)
                .integer(warehouse)
                .integer(customer)
                .text(THEN);
            if order <= delivered {
                rows.integer(random.between(1, 10));
            } else {
                rows.null();
            }
            rows.integer(lines).integer(1);
            rows.end().await?;
        }
    }
    rows.finish().await?;

    let mut rows = loader.copy("order_line").await?;
    let mut counts = line_counts.into_iter();
    for (warehouse, district) in districts(size) {
        for (order, lines) in (1..=per_district).zip(counts.by_ref()) {
            for number in 1..=lines {
                rows.integer(order)
                    .integer(district)
                    .integer(warehouse)
                    .integer(number);
                rows.integer(random.between(1, i64::from(size.items)))
                    .integer(warehouse);
                if order <= delivered {
                    rows.text(THEN).integer(5).cents(0);
                } else {
                    rows.null().integer(5).cents(random.between(1, 999_999));
                }
                rows.text(&random.alphanumeric(24, 24));
                rows.end().await?;
            }
        }
    }
    rows.finish().await?;

    let mut rows = loader.copy("new_order").await?;
    for (warehouse, district) in districts(size) {
        for order in delivered + 1..=per_district {
            rows.integer(order).integer(district).integer(warehouse);
            rows.end().await?;
        }
    }
    rows.finish().await?;
    Ok(())
}

fn districts(size: TpccSize) -> impl Iterator<Item = (i32, i32)> {
    (1..=size.warehouses).flat_map(|warehouse| (1..=10).map(move |district| (warehouse, district)))
}

/// Streets, city, state, zip.
fn address(rows: &mut Rows, random: &mut Random) {
    rows.text(&random.alphanumeric(10, 20))
        .text(&random.alphanumeric(10, 20))
        .text(&random.alphanumeric(10, 20));
    rows.text(&random.alphanumeric(2, 2).to_uppercase())
        .text(&format!("{}11111", random.digits(4)));
}

/// One in ten is an original.
fn data(random: &mut Random) -> String {
    let mut data = random.alphanumeric(26, 50);
    if random.chance(0.1) {
        let at = random.between(0, data.len() as i64 - 8) as usize;
        data.replace_range(at..at + 8, "ORIGINAL");
    }
    data
}

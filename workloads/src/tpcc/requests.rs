use super::handlers::{Line, NewOrder, Payment};
use super::{C_CUSTOMER, C_ITEM, C_LAST_RUNNING, last_name, nurand};
use crate::drive::{Generator, HttpCall, Operation};
use crate::random::Random;
use crate::workload::TpccSize;

/// Clauses 2.4.1 and 2.5.1, half of each.
pub struct Requests {
    size: TpccSize,
    made: i64,
}

impl Requests {
    pub fn new(size: TpccSize) -> Self {
        Self { size, made: 0 }
    }

    fn warehouse(&self, random: &mut Random) -> i32 {
        random.between(1, i64::from(self.size.warehouses)) as i32
    }

    /// Any warehouse but this one, where there is another.
    fn other_warehouse(&self, home: i32, random: &mut Random) -> i32 {
        if self.size.warehouses == 1 {
            return home;
        }
        let drawn = random.between(1, i64::from(self.size.warehouses) - 1) as i32;
        if drawn < home { drawn } else { drawn + 1 }
    }

    fn customer(&self, random: &mut Random) -> i32 {
        nurand(
            random,
            1023,
            C_CUSTOMER,
            1,
            i64::from(self.size.customers_per_district),
        ) as i32
    }

    /// A millisecond after the request before.
    fn time(&mut self) -> String {
        self.made += 1;
        let (seconds, millis) = (self.made / 1_000, self.made % 1_000);
        let (minutes, seconds) = (seconds / 60, seconds % 60);
        let (hours, minutes) = (minutes / 60, minutes % 60);
        let (days, hours) = (hours / 24, hours % 24);
        format!(
            "2024-{:02}-{:02}T{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z",
            2 + days / 28 % 11,
            1 + days % 28
        )
    }

    fn new_order(&mut self, random: &mut Random) -> NewOrder {
        let w_id = self.warehouse(random);
        let mut lines = Vec::new();
        for _ in 0..random.between(5, 15) {
            let remote = random.chance(0.01);
            lines.push(Line {
                i_id: nurand(random, 8191, C_ITEM, 1, i64::from(self.size.items)) as i32,
                supply_w_id: if remote {
                    self.other_warehouse(w_id, random)
                } else {
                    w_id
                },
                quantity: random.between(1, 10) as i32,
            });
        }
        if random.chance(0.01)
            && let Some(last) = lines.last_mut()
        {
            last.i_id = self.size.items + 1;
        }
        NewOrder {
            w_id,
            d_id: random.between(1, 10) as i32,
            c_id: self.customer(random),
            entry_d: Some(self.time()),
            lines,
        }
    }

    fn payment(&mut self, random: &mut Random) -> Payment {
        let (w_id, d_id) = (self.warehouse(random), random.between(1, 10) as i32);
        let (c_w_id, c_d_id) = if random.chance(0.85) {
            (w_id, d_id)
        } else {
            (
                self.other_warehouse(w_id, random),
                random.between(1, 10) as i32,
            )
        };
        let names = i64::from(self.size.customers_per_district.min(1_000)) - 1;
        let (c_id, c_last) = if random.chance(0.6) {
            (
                None,
                Some(last_name(nurand(random, 255, C_LAST_RUNNING, 0, names))),
            )
        } else {
            (Some(self.customer(random)), None)
        };
        let amount_cents = random.between(100, 500_000);
        Payment {
            w_id,
            d_id,
            c_w_id,
            c_d_id,
            c_id,
            c_last,
            amount_cents,
            date: Some(self.time()),
        }
    }
}

impl Generator for Requests {
    fn operations(&self) -> &'static [Operation] {
        const {
            &[
                Operation::new("payment", 50.0),
                Operation::new("new-order", 50.0),
            ]
        }
    }

    fn call(&mut self, operation: usize, random: &mut Random) -> HttpCall {
        match operation {
            0 => HttpCall::post("/tpcc/payment".to_owned(), &self.payment(random)),
            _ => HttpCall::post("/tpcc/new-order".to_owned(), &self.new_order(random)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scale;

    #[test]
    fn orders_and_payments_are_drawn_as_specified() {
        let mut requests = Requests::new(Scale::PAPER.tpcc());
        let mut random = Random::new(42);
        let (mut rolled_back, mut lines, mut remote) = (0, 0, 0);
        for _ in 0..10_000 {
            let order = requests.new_order(&mut random);
            rolled_back += usize::from(order.lines.iter().any(|line| line.i_id > 100_000));
            lines += order.lines.len();
            remote += order
                .lines
                .iter()
                .filter(|line| line.supply_w_id != order.w_id)
                .count();
        }
        assert!(
            (60..140).contains(&rolled_back),
            "{rolled_back} in 10000 are rolled back"
        );
        assert!(
            (97_000..103_000).contains(&lines),
            "{lines} lines in 10000 orders"
        );
        assert!((800..1_200).contains(&remote), "{remote} remote lines");

        let payments: Vec<_> = (0..10_000).map(|_| requests.payment(&mut random)).collect();
        let by_name = payments
            .iter()
            .filter(|payment| payment.c_last.is_some())
            .count();
        let away = payments
            .iter()
            .filter(|payment| payment.c_w_id != payment.w_id)
            .count();
        assert!((5_800..6_200).contains(&by_name), "{by_name} by last name");
        assert!(
            (1_300..1_700).contains(&away),
            "{away} from another warehouse"
        );
        assert!(
            payments
                .iter()
                .all(|payment| payment.c_last.is_some() != payment.c_id.is_some())
        );
    }
}

-- Accounts that were overdrawn, which every single withdrawal forbids: no row unless the race happened.
SELECT account_id, sum(amount) AS balance FROM entry GROUP BY account_id HAVING sum(amount) < 0 ORDER BY account_id;

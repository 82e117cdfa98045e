-- Slots that were given to more than one guest: no row unless the race happened.
SELECT room_id, slot, count(*) AS guests FROM booking GROUP BY room_id, slot HAVING count(*) > 1 ORDER BY room_id, slot;

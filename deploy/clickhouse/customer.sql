-- An example: a customer who sees only their own drivers, whose ids begin with acme-. Run it after access.sql, as an administrator.
-- For another customer, replace acme by another name everywhere and run it again.
-- The tests only parse this file, because their engine has no users.
-- Views run with the caller's rights. So the row policies on the tables also limit what the views show: fixes, last_positions,
-- driver_quarters, trips, stops and all of fleet_ask.
-- milepost_customer is granted to every customer's role. The policy everybody_else and the quota below name it, so they need no
-- change for the next customer.
CREATE ROLE IF NOT EXISTS milepost_customer;
CREATE ROLE IF NOT EXISTS customer_acme;
GRANT milepost_customer TO customer_acme;

-- The policies come before the grants: at no moment may a customer see another customer's rows.
CREATE ROW POLICY IF NOT EXISTS customer_acme ON fleet.positions, fleet.last_positions_state, fleet.touched,
    fleet.driver_days_state, fleet.rejects, fleet.events, fleet.event_states, fleet.recent_events, fleet.erased,
    fleet.drivers, fleet.alerts_seen, fleet.trip_rules
    FOR SELECT USING startsWith(driver_id, 'acme-') TO customer_acme;
-- fences has no driver_id, so the name of an area decides: the customer sees those whose names begin with acme-, with their drivers.
CREATE ROW POLICY IF NOT EXISTS customer_acme ON fleet.fences FOR SELECT USING startsWith(name, 'acme-') TO customer_acme;
-- Users without a row policy may see no rows of a table that has one (users_without_row_policies_can_read_rows). So this policy
-- shows all rows to everybody who is not a customer.
CREATE ROW POLICY OR REPLACE everybody_else ON fleet.positions, fleet.last_positions_state, fleet.touched,
    fleet.driver_days_state, fleet.rejects, fleet.events, fleet.event_states, fleet.recent_events, fleet.erased,
    fleet.drivers, fleet.alerts_seen, fleet.trip_rules, fleet.fences
    FOR SELECT USING 1 TO ALL EXCEPT milepost_customer;

GRANT SELECT ON fleet.positions TO customer_acme;
GRANT SELECT ON fleet.fixes TO customer_acme;
GRANT SELECT ON fleet.last_positions_state TO customer_acme;
GRANT SELECT ON fleet.last_positions TO customer_acme;
GRANT SELECT ON fleet.touched TO customer_acme;
GRANT SELECT ON fleet.driver_days_state TO customer_acme;
GRANT SELECT ON fleet.driver_quarters TO customer_acme;
GRANT SELECT ON fleet.trips TO customer_acme;
GRANT SELECT ON fleet.stops TO customer_acme;
GRANT SELECT ON fleet.rejects TO customer_acme;
GRANT SELECT ON fleet.events TO customer_acme;
GRANT SELECT ON fleet.event_states TO customer_acme;
GRANT SELECT ON fleet.recent_events TO customer_acme;
GRANT SELECT ON fleet_ask.* TO customer_acme;
-- For fleet_ask.fence_visits, and for a live map of the customer's own: areas, names of drivers and acknowledged alerts.
GRANT SELECT ON fleet.fences TO customer_acme;
GRANT SELECT ON fleet.drivers TO customer_acme;
GRANT SELECT ON fleet.alerts_seen TO customer_acme;

-- A customer has the same limits and quota as other readers.
CREATE USER IF NOT EXISTS acme IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_ACME'
    HOST IP '10.0.0.0/8' DEFAULT ROLE customer_acme SETTINGS PROFILE 'milepost_reader';
GRANT customer_acme TO acme;
ALTER QUOTA IF EXISTS milepost_readers TO milepost_reader, milepost_customer;

-- An example: a customer who sees only their own drivers, those whose names begin with acme-. Run after access.sql, by an administrator.
-- For another customer run it again with another name for acme, everywhere.
-- The tests parse this file. They cannot run it: their engine has no users.
-- Views run with the rights of who asks, so what holds for the tables holds for fixes, last_positions, driver_quarters,
-- trips, stops and all of fleet_ask.
-- Every customer's role has it. What is said of "all others" names this one, so that the next customer is none of them.
CREATE ROLE IF NOT EXISTS milepost_customer;
CREATE ROLE IF NOT EXISTS customer_acme;
GRANT milepost_customer TO customer_acme;
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

CREATE ROW POLICY IF NOT EXISTS customer_acme ON fleet.positions, fleet.last_positions_state, fleet.touched,
    fleet.driver_days_state, fleet.rejects, fleet.events, fleet.event_states, fleet.recent_events, fleet.erased,
    fleet.drivers, fleet.alerts_seen, fleet.trip_rules
    FOR SELECT USING startsWith(driver_id, 'acme-') TO customer_acme;
-- A table with a policy may show nothing to those who have none (users_without_row_policies_can_read_rows): all others see all.
CREATE ROW POLICY OR REPLACE everybody_else ON fleet.positions, fleet.last_positions_state, fleet.touched,
    fleet.driver_days_state, fleet.rejects, fleet.events, fleet.event_states, fleet.recent_events, fleet.erased,
    fleet.drivers, fleet.alerts_seen, fleet.trip_rules
    FOR SELECT USING 1 TO ALL EXCEPT milepost_customer;

-- The limits and the quota are those of other readers.
CREATE USER IF NOT EXISTS acme IDENTIFIED WITH sha256_hash BY 'HASH_OF_THE_PASSWORD_OF_ACME'
    HOST IP '10.0.0.0/8' DEFAULT ROLE customer_acme SETTINGS PROFILE 'milepost_reader';
GRANT customer_acme TO acme;
ALTER QUOTA IF EXISTS milepost_readers TO milepost_reader, milepost_customer;

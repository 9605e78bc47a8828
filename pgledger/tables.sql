CREATE TABLE IF NOT EXISTS orbit.format (version integer NOT NULL);
INSERT INTO orbit.format SELECT 1 WHERE NOT EXISTS (SELECT FROM orbit.format);

CREATE TABLE IF NOT EXISTS orbit.log (
	id         integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
	name       text    NOT NULL UNIQUE,
	checkpoint bigint,  -- the index of the newest checkpoint; NULL: there is none
	maker      bigint,  -- which of the checkpoints at this index it is
	parts      integer  -- how many parts it has
);

CREATE TABLE IF NOT EXISTS orbit.entry (
	log  integer NOT NULL,
	at   bigint  NOT NULL, -- the index; a new log has an empty entry 0, so that each entry has one before it
	data bytea   NOT NULL,
	PRIMARY KEY (log, at)
) WITH (toast_tuple_target = 8160);
ALTER TABLE orbit.entry ALTER COLUMN data SET STORAGE EXTERNAL; -- it is compressed already

CREATE TABLE IF NOT EXISTS orbit.post (
	log    integer NOT NULL,
	since  bigint  NOT NULL, -- the index of the newest entry when it was posted
	id     bigint  GENERATED ALWAYS AS IDENTITY,
	writer bigint  NOT NULL,
	number bigint  NOT NULL,
	data   bytea   NOT NULL,
	PRIMARY KEY (log, since, id)
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE orbit.post ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE IF NOT EXISTS orbit.checkpoint (
	log   integer NOT NULL,
	at    bigint  NOT NULL,
	maker bigint  NOT NULL, -- random: several processes may make one at the same index
	part  integer NOT NULL,
	data  bytea   NOT NULL,
	PRIMARY KEY (log, at, maker, part)
);
ALTER TABLE orbit.checkpoint ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE IF NOT EXISTS orbit.term (
	log   integer     NOT NULL,
	id    bigint      GENERATED ALWAYS AS IDENTITY,
	lasts bigint      NOT NULL,               -- for how many nanoseconds it lives after a refresh
	beats bigint      NOT NULL DEFAULT 0,     -- counts the refreshes
	kept  timestamptz NOT NULL DEFAULT now(), -- when it was refreshed last; it only tells which rows nobody needs any more
	PRIMARY KEY (log, id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 10000);

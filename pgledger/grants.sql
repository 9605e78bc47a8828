GRANT SELECT ON orbit.format, orbit.log, orbit.entry, orbit.post, orbit.checkpoint, orbit.term TO ROLE; -- enough to read
GRANT INSERT (name), UPDATE (checkpoint, maker, parts) ON orbit.log TO ROLE;
GRANT INSERT, DELETE ON orbit.entry, orbit.post, orbit.checkpoint TO ROLE;
GRANT UPDATE (log) ON orbit.entry TO ROLE; -- to lock a row; nothing is updated
GRANT INSERT, DELETE, UPDATE (beats, kept) ON orbit.term TO ROLE;

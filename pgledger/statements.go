package pgledger

import (
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// This file has the SQL of a log. All of it runs in the isolation level READ COMMITTED, which is set by no statement here
// because each is a transaction of its own, and stronger levels would only make statements fail that are right.
//
// In READ COMMITTED a statement sees what was committed before it began, and its own changes only in what RETURNING returns.
// Two things see more: a lock on a row (FOR KEY SHARE) waits for the transaction that is deleting the row, and then takes the
// row as that transaction has left it; and a unique index knows rows that the statement cannot see yet.

// statements are the statements of a log in one schema.
type statements struct {
	append, post, read, tail, poll                   string
	format, find, make                               string
	checkpoint, part, addPart, switchTo, removeParts string
	bounds, trim                                     string
	beginTerm, keepTerms, readTerms, endTerms        string
	oldTerms                                         string
}

// postsAfter is how many entries may be added after a post until nobody looks for it any more: it is one that no version in
// use can read. Without such a bound, reading the posts would read all those that were deleted and that vacuum could not
// remove yet, because an old transaction is open.
const postsAfter = "4096"

// newest is the index of the newest entry. No entry is ever removed at this end, so it costs one step down an index.
const newest = `(SELECT at FROM orbit.entry WHERE log = $1 ORDER BY at DESC LIMIT 1)`

// appendSQL writes entry $2 with the data $3, if entry $2 - 1 is the newest one.
//
// Why it is right: the row of the entry before is locked, so that entry exists and is not removed before the commit (Trim
// removes entries from the oldest on, so the ones after it are there, too, if they ever were); and the primary key lets one
// transaction in the world write entry $2. If another one is about to, this one waits: it writes nothing if the other commits,
// and goes on if that rolls back. So an entry that comes late, at an index that is taken, trimmed or not next, writes nothing,
// however old the snapshot of its statement is. No counter has to be updated, which would leave a dead row behind each entry.
//
// $4 is how the entry before begins, as far as this handle knows. It differs if the server has lost entries: then what this
// ledger has built on them must not be stored.
//
// The posts $5, $6 (writers and numbers) are deleted with the entry. Posts that are committed after the statement began are
// not among those that it returns: they are notified after it.
const appendSQL = `
WITH before AS MATERIALIZED (
	SELECT FROM orbit.entry WHERE log = $1 AND at = $2::bigint - 1 AND ($4::bytea IS NULL OR substr(data, 1, 32) = $4) FOR KEY SHARE
), added AS (
	INSERT INTO orbit.entry (log, at, data) SELECT $1, $2, $3::bytea FROM before ON CONFLICT DO NOTHING RETURNING at
), settles AS (
	SELECT * FROM unnest($5::bigint[], $6::bigint[]) AS s (writer, number)
), settled AS (
	DELETE FROM orbit.post p USING added, settles s WHERE p.log = $1 AND p.since >= $2 - 1 - ` + postsAfter + ` AND p.writer = s.writer AND p.number = s.number
), told AS (
	SELECT pg_notify($7, $8), ` + durable + ` FROM added
)
SELECT p.writer, p.number, p.data
FROM added CROSS JOIN told LEFT JOIN (
	SELECT * FROM orbit.post p WHERE log = $1 AND since >= $2 - 1 - ` + postsAfter + ` AND (writer, number) NOT IN (SELECT writer, number FROM settles)
) p ON true
ORDER BY p.since, p.id`

// durable makes the transaction wait at its commit until it is on the disk, if the server would not by itself
// (synchronous_commit = off). What the setting says of standbys, if it is not off, is the administrator's choice.
const durable = `set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

// postSQL stores a post. It does not wait for the disk: an entry that settles the post does, and if the server crashes before,
// its writer appends the proposals itself.
const postSQL = `
WITH added AS (
	INSERT INTO orbit.post (log, since, writer, number, data) VALUES ($1, ` + newest + `, $2, $3, $4)
)
SELECT pg_notify($5, $6), set_config('synchronous_commit', 'off', true)`

// readSQL returns the entries after index $2, as many as fit into $3 bytes, and the posts, all as of one moment. It also says
// how the entry at $2 begins.
const readSQL = `
WITH page AS (
	SELECT at, data FROM (
		SELECT at, data, sum(octet_length(data)) OVER (ORDER BY at) - octet_length(data) AS before
		FROM orbit.entry WHERE log = $1 AND at > $2 ORDER BY at LIMIT 1000
	) e WHERE before < $3::bigint ORDER BY at
), posts AS (
	SELECT * FROM orbit.post WHERE log = $1 AND since >= $2 - ` + postsAfter + ` ORDER BY since, id
)
SELECT pg_is_in_recovery(), ` + newest + `, (SELECT substr(data, 1, 32) FROM orbit.entry WHERE log = $1 AND at = $2),
	(SELECT min(at) FROM page), ARRAY(SELECT data FROM page ORDER BY at),
	ARRAY(SELECT writer FROM posts ORDER BY since, id), ARRAY(SELECT number FROM posts ORDER BY since, id), ARRAY(SELECT data FROM posts ORDER BY since, id)`

// pollSQL returns two numbers that change with each entry and each post.
const pollSQL = `
SELECT e.at, COALESCE((SELECT max(id) FROM orbit.post WHERE log = $1 AND since >= e.at - ` + postsAfter + `), 0) FROM ` + newest + ` e`

// makeSQL makes a log.
const makeSQL = `
WITH made AS (INSERT INTO orbit.log (name) VALUES ($1) ON CONFLICT DO NOTHING RETURNING id)
INSERT INTO orbit.entry (log, at, data) SELECT id, 0, '' FROM made`

// switchSQL makes the parts that maker $3 has stored the newest checkpoint, if that one is older, and removes those that it replaces: other
// processes may be storing newer ones.
const switchSQL = `
WITH switched AS (
	UPDATE orbit.log SET checkpoint = $2, maker = $3, parts = $4 WHERE id = $1 AND (checkpoint IS NULL OR checkpoint < $2) RETURNING id
), removed AS (
	DELETE FROM orbit.checkpoint c USING switched WHERE c.log = id AND c.at <= $2 AND c.maker <> $3
)
SELECT ` + durable + ` FROM switched`

// beginTermSQL makes a term, which lasts for $2 ns after each refresh. All statements that change terms wait for the disk: what
// they answer must not be undone by a crash of the server.
const beginTermSQL = `
WITH made AS (INSERT INTO orbit.term (log, lasts) VALUES ($1, $2) RETURNING id, beats, lasts)
SELECT id, beats, lasts, ` + durable + ` FROM made`

// keepTermsSQL refreshes the terms $2, and returns those that live. Rows are locked in the order of their ids, so that two
// processes do not wait for each other.
const keepTermsSQL = `
WITH locked AS MATERIALIZED (
	SELECT id FROM orbit.term WHERE log = $1 AND id = ANY($2::bigint[]) ORDER BY id FOR UPDATE
), kept AS (
	UPDATE orbit.term t SET beats = beats + 1, kept = now() FROM locked l WHERE t.log = $1 AND t.id = l.id RETURNING t.id, t.beats, t.lasts
)
SELECT id, beats, lasts, ` + durable + ` FROM kept`

// endTermsSQL ends each of the terms $2 whose count is still that in $3, and returns those that it has ended. A term that is
// refreshed at the same time is not ended: the lock waits for the refresh, and then compares the new count.
const endTermsSQL = `
WITH locked AS MATERIALIZED (
	SELECT t.id FROM orbit.term t JOIN unnest($2::bigint[], $3::bigint[]) s (id, beats) ON t.id = s.id AND t.beats = s.beats
	WHERE t.log = $1 ORDER BY t.id FOR UPDATE OF t
), ended AS (
	DELETE FROM orbit.term t USING locked l WHERE t.log = $1 AND t.id = l.id RETURNING t.id
)
SELECT id, ` + durable + ` FROM ended`

// newStatements returns the statements for a schema.
func newStatements(schema string) *statements {
	in := func(sql string) string { return inSchema(sql, schema) }
	return &statements{
		append: in(appendSQL), post: in(postSQL), read: in(readSQL), poll: in(pollSQL),
		tail:        in(`SELECT pg_is_in_recovery(), ` + newest),
		format:      in(`SELECT version FROM orbit.format`),
		find:        in(`SELECT id FROM orbit.log WHERE name = $1`),
		make:        in(makeSQL),
		checkpoint:  in(`SELECT pg_is_in_recovery(), checkpoint, maker, parts FROM orbit.log WHERE id = $1`),
		part:        in(`SELECT data FROM orbit.checkpoint WHERE log = $1 AND at = $2 AND maker = $3 AND part = $4`),
		addPart:     in(`INSERT INTO orbit.checkpoint (log, at, maker, part, data) VALUES ($1, $2, $3, $4, $5)`),
		switchTo:    in(switchSQL),
		removeParts: in(`DELETE FROM orbit.checkpoint WHERE log = $1 AND at = $2 AND maker = $3`),
		bounds:      in(`SELECT min(at), max(at) FROM orbit.entry WHERE log = $1 AND at >= $2`),
		beginTerm:   in(beginTermSQL),
		keepTerms:   in(keepTermsSQL),
		readTerms:   in(`SELECT id, beats, lasts, ''::text FROM orbit.term WHERE log = $1 AND id = ANY($2::bigint[])`),
		endTerms:    in(endTermsSQL),
		oldTerms:    in(`DELETE FROM orbit.term WHERE log = $1 AND kept < now() - interval '7 days'`),
		trim:        in(`DELETE FROM orbit.entry WHERE log = $1 AND at BETWEEN $2 AND $3`),
	}
}

// inSchema puts the name of a schema into SQL that says orbit.
func inSchema(sql, schema string) string {
	return strings.ReplaceAll(sql, "orbit.", pgx.Identifier{schema}.Sanitize()+".")
}

// SQL returns the statements that make the tables in a schema, for an administrator to run where the role of the ledger may
// not. With a role, they also grant it what a ledger needs, and nothing else.
func SQL(schema, role string) string {
	name := pgx.Identifier{schema}.Sanitize()
	out := fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS %s;\n%s", name, inSchema(tablesSQL, schema))
	if role == "" {
		return out
	}
	role = pgx.Identifier{role}.Sanitize()
	return fmt.Sprintf("%s\nGRANT USAGE ON SCHEMA %s TO %s;\n%s", out, name, role, strings.ReplaceAll(inSchema(grantsSQL, schema), "ROLE", role))
}

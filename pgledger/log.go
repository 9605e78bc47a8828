package pgledger

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
)

// Log is a log in a Postgres database. Its methods may be called from any goroutine.
type Log struct {
	pool    *pgxpool.Pool
	options LogOptions
	sql     *statements
	// id is the log's number, channel its channel of notifications, and self marks the notifications of this handle.
	id            int32
	channel, self string
	changed       chan struct{}
	listener

	mu sync.Mutex // guards what follows
	// last is the newest entry that this handle has returned or written, begins is how it begins.
	last   logledger.Index
	begins []byte
	// trimmed is the index up to which this handle knows all entries to be removed.
	trimmed int64
}

var (
	_ logledger.Poster = (*Log)(nil)
	_ logledger.Placer = (*Log)(nil)
)

// version is the version of the tables that this package makes, and the only one that it knows.
const version = 1

// pageBytes is how many bytes of entries Read returns at most, if there are several.
const pageBytes = 4 << 20

// beginning is how many bytes of an entry tell it apart from all others: they include its writer and number. The statements
// use the same number.
const beginning = 32

//go:embed tables.sql
var tablesSQL string

//go:embed grants.sql
var grantsSQL string

// setUp finds the log, and makes it if it is not there.
func (h *Log) setUp(ctx context.Context) error {
	var found int
	err := h.row(ctx, h.sql.format, nil, &found)
	if is(err, noTable, noSchema) {
		if h.options.Existing {
			return ErrNoLog
		}
		if err = h.makeTables(ctx); err == nil {
			err = h.row(ctx, h.sql.format, nil, &found)
		}
	}
	if err == nil && found > version {
		return fmt.Errorf("%w: the tables have version %d, this is version %d", logledger.ErrVersion, found, version)
	}
	if err == nil {
		err = h.find(ctx)
	}
	switch config := h.pool.Config().ConnConfig; {
	case is(err, noDatabase):
		return setup(err, "an administrator runs: CREATE DATABASE %s OWNER %s", pgx.Identifier{config.Database}.Sanitize(), pgx.Identifier{config.User}.Sanitize())
	case is(err, noRole):
		return setup(err, "give the right password, or an administrator runs: CREATE ROLE %s LOGIN", pgx.Identifier{config.User}.Sanitize())
	}
	if is(err, noTable, noSchema, noPermission, noColumn) {
		return setup(err, "an administrator runs, with the name of the role:\n%s", SQL(h.options.Schema, "ROLE"))
	}
	return err
}

// makeTables makes the schema and the tables. Of several processes that try at the same time one does it, and the others wait.
func (h *Log) makeTables(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	var there bool
	if err := h.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)`, h.options.Schema).Scan(&there); err != nil {
		return nothingDone(err)
	}
	sql := SQL(h.options.Schema, "")
	if there { // whoever may use the schema need not be allowed to make one
		_, sql, _ = strings.Cut(sql, "\n")
	}
	err := pgx.BeginFunc(ctx, h.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtext('orbit pgledger'))`); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, sql)
		return err
	})
	if err != nil {
		return nothingDone(err) // nothing that could not be done again
	}
	return nil
}

// find finds the log, or makes it.
func (h *Log) find(ctx context.Context) error {
	err := h.row(ctx, h.sql.find, []any{h.options.Name}, &h.id)
	if errors.Is(err, pgx.ErrNoRows) {
		if h.options.Existing {
			return ErrNoLog
		}
		if err = h.rows(ctx, h.sql.make, []any{h.options.Name}, nil); err == nil {
			err = h.row(ctx, h.sql.find, []any{h.options.Name}, &h.id)
		}
	}
	return err
}

// rows runs a statement, and calls each, if it is not nil, for every row that it returns.
func (h *Log) rows(ctx context.Context, sql string, args []any, each func(pgx.Rows) error) error {
	ctx, cancel := context.WithTimeout(ctx, h.options.Timeout)
	defer cancel()
	conn, err := h.pool.Acquire(ctx)
	if err != nil {
		return nothingDone(err)
	}
	defer conn.Release()
	rows, err := conn.Query(ctx, sql, args...)
	for err == nil && rows.Next() {
		if each != nil {
			err = each(rows)
		}
	}
	rows.Close()
	if err != nil && rows.Err() == nil {
		return err
	}
	return outcome(rows.Err(), rows.CommandTag())
}

// row runs a statement that reads one row. Its error is orbit.ErrUnavailable if it could not, and pgx.ErrNoRows if there is none.
func (h *Log) row(ctx context.Context, sql string, args []any, to ...any) error {
	found := false
	err := h.rows(ctx, sql, args, func(r pgx.Rows) error {
		found = true
		return r.Scan(to...)
	})
	switch {
	case err == nil && !found:
		return pgx.ErrNoRows
	case err != nil && !errors.Is(err, orbit.ErrUnavailable):
		return nothingDone(err)
	}
	return err
}

// Append implements [logledger.Log].
func (h *Log) Append(ctx context.Context, a logledger.Append) (posts []logledger.Post, err error) {
	if a.Index == 0 || a.Index > math.MaxInt64 {
		return nil, logledger.ErrTaken
	}
	writers, numbers := make([]int64, len(a.Settled)), make([]int64, len(a.Settled))
	for i, id := range a.Settled {
		writers[i], numbers[i] = columns(id)
	}
	args := []any{h.id, int64(a.Index), nonNil(a.Data), h.beginsAt(a.Index - 1), writers, numbers, h.channel, h.self}
	taken := true
	err = h.rows(ctx, h.sql.append, args, func(r pgx.Rows) error {
		taken = false
		var writer, number *int64
		var data []byte
		if err := r.Scan(&writer, &number, &data); err != nil || writer == nil {
			return err
		}
		posts = append(posts, logledger.Post{PostID: postID(*writer, *number), Data: data})
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("pgledger: append entry %d: %w", a.Index, err)
	case taken:
		return nil, logledger.ErrTaken
	}
	h.remember(a.Index, a.Data)
	return posts, nil
}

// columns returns an id as the two columns of the table of posts.
func columns(id logledger.PostID) (writer, number int64) {
	return int64(binary.BigEndian.Uint64(id.Writer[:])), int64(id.Number)
}

// postID is the inverse of columns.
func postID(writer, number int64) (id logledger.PostID) {
	binary.BigEndian.PutUint64(id.Writer[:], uint64(writer))
	id.Number = uint64(number)
	return id
}

// nonNil returns data that is not NULL in SQL.
func nonNil(data []byte) []byte {
	if data == nil {
		return []byte{}
	}
	return data
}

// remember notes the newest entry that this handle has returned or written.
func (h *Log) remember(at logledger.Index, data []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last, h.begins = at, bytes.Clone(data[:min(len(data), beginning)])
}

// beginsAt returns how the entry at an index begins; nil: that is not known.
func (h *Log) beginsAt(at logledger.Index) []byte {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.last != at {
		return nil
	}
	return h.begins
}

// Post implements [logledger.Poster].
func (h *Log) Post(ctx context.Context, p logledger.Post) error {
	writer, number := columns(p.PostID)
	err := h.rows(ctx, h.sql.post, []any{h.id, writer, number, nonNil(p.Data), h.channel, h.self}, nil)
	if err != nil {
		return fmt.Errorf("pgledger: post: %w", err)
	}
	return nil
}

// Read implements [logledger.Log]. It fails with [logledger.ErrFailed] if the server has lost entries that this handle has
// returned or written.
func (h *Log) Read(ctx context.Context, after logledger.Index) (page logledger.Page, err error) {
	if after > math.MaxInt64 {
		return page, fmt.Errorf("pgledger: read after %d: %w", after, orbit.ErrInvalid)
	}
	var standby bool
	var newest, first *int64
	var before []byte
	var posts struct {
		writers, numbers []int64
		data             [][]byte
	}
	err = h.row(ctx, h.sql.read, []any{h.id, int64(after), int64(pageBytes)},
		&standby, &newest, &before, &first, &page.Entries, &posts.writers, &posts.numbers, &posts.data)
	if err == nil {
		err = h.judge(standby, newest, first, after, before)
	}
	if err != nil {
		return logledger.Page{}, fmt.Errorf("pgledger: read after %d: %w", after, err)
	}
	last := after + logledger.Index(len(page.Entries))
	if n := len(page.Entries); n > 0 {
		h.remember(last, page.Entries[n-1])
	}
	if page.More = last < logledger.Index(*newest); page.More {
		return page, nil
	}
	for i, data := range posts.data {
		page.Posts = append(page.Posts, logledger.Post{PostID: postID(posts.writers[i], posts.numbers[i]), Data: data})
	}
	return page, nil
}

// judge returns an error if the entries after an index cannot be read from what the server has: entries up to newest, which
// after the index begin at first; before is how the entry at the index begins. Nil is what is not there.
func (h *Log) judge(standby bool, newest, first *int64, after logledger.Index, before []byte) error {
	known := h.beginsAt(after)
	switch {
	case standby:
		return nothingDone(errStandby)
	case newest == nil, int64(after) > *newest, known != nil && before != nil && !bytes.Equal(known, before):
		return fmt.Errorf("%w: %w", logledger.ErrFailed, errLost)
	case first == nil && int64(after) < *newest, first != nil && *first != int64(after)+1:
		return logledger.ErrTrimmed
	}
	return nil
}

// Place implements [logledger.Placer]. It names the row of the entry.
func (h *Log) Place(at logledger.Index) logledger.Place {
	return h.place("entry", fmt.Sprintf("log = %d, at = %d", h.id, at))
}

// place is where a row is.
func (h *Log) place(table, key string) logledger.Place {
	return logledger.Place{Name: fmt.Sprintf("table %s, row %s", pgx.Identifier{h.options.Schema, table}.Sanitize(), key), Offset: -1}
}

// Tail implements [logledger.Log].
func (h *Log) Tail(ctx context.Context) (logledger.Index, error) {
	var standby bool
	var newest *int64
	err := h.row(ctx, h.sql.tail, []any{h.id}, &standby, &newest)
	switch {
	case err != nil:
	case standby:
		err = nothingDone(errStandby)
	case newest == nil:
		err = fmt.Errorf("%w: %w", logledger.ErrFailed, errLost)
	default:
		return logledger.Index(*newest), nil
	}
	return 0, fmt.Errorf("pgledger: read the newest index: %w", err)
}

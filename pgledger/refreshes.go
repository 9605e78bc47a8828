package pgledger

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/lease"
)

// Refreshes is a [lease.Refreshes] for [lease.Keeper.Refreshes], through which all processes on a ledger share the refreshes
// of their leases. Its methods may be called from any goroutine. Their errors wrap orbit.ErrUnavailable.
//
// A token is a row with a counter, which each refresh raises. No clock of the server decides anything: a process that has
// seen no other count for as long as the token lasts, by its own clock, deletes the row, provided that the count is still the
// same. The token has ended when the row is gone. So clocks of servers and processes need not agree, and may be set.
//
// After an outage of the server no count has changed, because nobody could refresh anything. So a process ends a token only if
// it has also seen the count unchanged, and the server at work, throughout the last quarter of that time. The results of Keep
// and Left are so short that the caller asks in time.
//
// Rows that were not refreshed for a week by the clock of the server are deleted; they are of terms that other ones have
// replaced.
type Refreshes struct {
	log *Log
	now func() time.Time

	mu    sync.Mutex // guards what follows; not held during statements
	seen  map[int64]*sighting
	swept time.Time // when rows that nobody needs were last deleted
}

var _ lease.Refreshes = (*Refreshes)(nil)

// sighting is what this process has seen of a token.
type sighting struct {
	beats int64
	lasts time.Duration
	// since is when the first statement that has read this count was answered, and newest is when the last one began.
	since, newest time.Time
	// steady is the beginning of the present run of statements that have read this count with no long pause between them.
	steady time.Time
	// until is the time before which no process ends the token; zero: this process has not seen the count change.
	until time.Time
}

const (
	// mostGap, as a part of the time that a token lasts, is the longest pause in a run, and leastRun the length of a run
	// after which a token may be ended.
	mostGap, leastRun = 2, 4
	sweepEvery        = time.Hour
)

// OpenRefreshes opens the refreshes of the ledger with this URL and these Options, of which it uses Schema, Name, Configure,
// Timeout and Patience. It has connections of its own, at most as many as pool_max_conns in the URL says. Errors are those of
// [Open]. The context is used by OpenRefreshes only. Close the Refreshes after the last call.
func OpenRefreshes(ctx context.Context, url string, o Options) (*Refreshes, error) {
	log, err := openPatiently(ctx, url, &o, handle)
	if err != nil {
		return nil, err
	}
	return &Refreshes{log: log, now: time.Now, seen: map[int64]*sighting{}}, nil
}

// Close closes the connections.
func (r *Refreshes) Close() error {
	r.log.pool.Close()
	return nil
}

// Begin implements [lease.Refreshes].
func (r *Refreshes) Begin(ctx context.Context, ttl time.Duration) (string, error) {
	if err := r.sweep(ctx); err != nil {
		return "", refreshError(err)
	}
	var token string
	err := r.read(ctx, r.log.sql.beginTerm, []any{r.log.id, int64(ttl)}, func(id int64, s *sighting, began time.Time) {
		token, s.until = strconv.FormatInt(id, 36), began.Add(ttl)
	})
	return token, err
}

// sweep deletes the rows of tokens that nobody has kept for a week, and about which nobody asks any more: those of terms that
// were replaced by others of the same lease. It does so at most once an hour.
func (r *Refreshes) sweep(ctx context.Context) error {
	now := r.now()
	r.mu.Lock()
	due := r.swept.IsZero() || now.Sub(r.swept) >= sweepEvery
	if due {
		r.swept = now
		for id, s := range r.seen {
			if now.Sub(s.newest) > mostGap*s.lasts+sweepEvery {
				delete(r.seen, id)
			}
		}
	}
	r.mu.Unlock()
	if !due {
		return nil
	}
	return r.log.rows(ctx, r.log.sql.oldTerms, []any{r.log.id}, nil)
}

// Keep implements [lease.Refreshes].
func (r *Refreshes) Keep(ctx context.Context, tokens []string) ([]time.Duration, error) {
	ids, at := r.parse(tokens)
	out := make([]time.Duration, len(tokens))
	err := r.read(ctx, r.log.sql.keepTerms, []any{r.log.id, ids}, func(id int64, s *sighting, began time.Time) {
		s.until = later(s.until, began.Add(s.lasts))
		for _, i := range at[id] {
			out[i] = s.lasts - s.lasts/leastRun
		}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Left implements [lease.Refreshes]. It promises a quarter of the time that a token lasts at most.
func (r *Refreshes) Left(ctx context.Context, tokens []string) ([]time.Duration, error) {
	ids, at := r.parse(tokens)
	out := make([]time.Duration, len(tokens))
	var silent, beats []int64
	err := r.read(ctx, r.log.sql.readTerms, []any{r.log.id, ids}, func(id int64, s *sighting, began time.Time) {
		for _, i := range at[id] {
			out[i] = max(1, min(s.until.Sub(began), s.lasts/leastRun)) // 1 ns: it lives, and that is all
		}
		if now := r.now(); now.Sub(s.since) >= s.lasts && now.Sub(s.steady) >= s.lasts/leastRun {
			silent, beats = append(silent, id), append(beats, s.beats)
		}
	})
	if err == nil && len(silent) > 0 {
		err = r.end(ctx, silent, beats, func(id int64) {
			for _, i := range at[id] {
				out[i] = 0
			}
		})
	}
	if err != nil {
		return nil, err
	}
	r.forget(ids, at, out)
	return out, nil
}

// parse returns the ids of tokens, and at which indexes each of them is. A text that is no token is left out.
func (r *Refreshes) parse(tokens []string) (ids []int64, at map[int64][]int) {
	at = make(map[int64][]int, len(tokens))
	ids = make([]int64, 0, len(tokens))
	for i, token := range tokens {
		id, err := strconv.ParseInt(token, 36, 64)
		if err != nil {
			continue
		}
		if at[id] == nil {
			ids = append(ids, id)
		}
		at[id] = append(at[id], i)
	}
	return ids, at
}

// read runs a statement that returns ids, counts and durations of tokens, notes them, and calls each for every one of them
// with the time at which the statement began.
func (r *Refreshes) read(ctx context.Context, sql string, args []any, each func(id int64, s *sighting, began time.Time)) error {
	type row struct{ id, beats, lasts int64 }
	var rows []row
	began := r.now()
	err := r.log.rows(ctx, sql, args, func(from pgx.Rows) error {
		var w row
		var durable string
		if err := from.Scan(&w.id, &w.beats, &w.lasts, &durable); err != nil {
			return err
		}
		rows = append(rows, w)
		return nil
	})
	if err != nil {
		return refreshError(err)
	}
	answered := r.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range rows {
		each(w.id, r.note(w.id, w.beats, time.Duration(w.lasts), began, answered), began)
	}
	return nil
}

// note notes what a statement has read of a token. If the count has risen since the statement before, that was after the
// statement before had begun, and no process ends the token until it has seen the new count for as long as the token lasts.
// The caller must hold the lock.
func (r *Refreshes) note(id, beats int64, lasts time.Duration, began, answered time.Time) *sighting {
	s := r.seen[id]
	switch {
	case s == nil || beats < s.beats:
		s = &sighting{since: answered, steady: answered}
		r.seen[id] = s
	case beats > s.beats:
		*s = sighting{since: answered, steady: answered, until: later(s.until, s.newest.Add(lasts))}
	case answered.Sub(s.newest) > lasts/mostGap:
		s.steady = answered
	}
	s.beats, s.lasts, s.newest = beats, lasts, later(s.newest, began)
	return s
}

// end ends tokens whose counts have not changed, and calls each for those that it has ended.
func (r *Refreshes) end(ctx context.Context, ids, beats []int64, each func(id int64)) error {
	err := r.log.rows(ctx, r.log.sql.endTerms, []any{r.log.id, ids, beats}, func(from pgx.Rows) error {
		var id int64
		var durable string
		if err := from.Scan(&id, &durable); err != nil {
			return err
		}
		each(id)
		return nil
	})
	if err != nil {
		return refreshError(err)
	}
	return nil
}

// refreshError returns the error of a statement that has failed. Its effect is not known, and does not matter to the caller.
func refreshError(err error) error {
	if !errors.Is(err, orbit.ErrUnavailable) {
		err = nothingDone(err)
	}
	return fmt.Errorf("pgledger: refreshes: %w", err)
}

// forget drops what was seen of tokens that have ended.
func (r *Refreshes) forget(ids []int64, at map[int64][]int, lives []time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if lives[at[id][0]] == 0 {
			delete(r.seen, id)
		}
	}
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

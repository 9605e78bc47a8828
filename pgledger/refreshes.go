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
// A token is a row with a counter, which each refresh raises. A process that has seen the same count for as long as the token lasts
// deletes the row, unless the count has changed by then; with the row, the token has ended. That time is measured by the
// clock of the process, so clocks of servers and processes need not agree.
//
// While the server is down, nobody can refresh a token, so an unchanged count says nothing. So a process ends a token only if it has
// also read the same count again and again during the last quarter of that time. Keep and Left return less than the token
// lasts, so that callers ask early enough for that.
//
// One thing is left to the clock of the server: rows that were not refreshed for a week are deleted. Normally nobody asks about them,
// because another term has replaced theirs; a server's clock that is set ahead by a week ends living tokens, too.
type Refreshes struct {
	log *Log
	now func() time.Time

	mu    sync.Mutex // guards what follows; not held during statements
	seen  map[int64]*sighting
	swept time.Time // when rows that nobody needs were last deleted
}

var (
	_ lease.Refreshes = (*Refreshes)(nil)
	_ lease.Silences  = (*Refreshes)(nil)
)

// sighting is what this process has seen of a token.
type sighting struct {
	beats int64
	lasts time.Duration
	// since is when the first statement that has read this count was answered, and newest is when the last one began.
	since, newest time.Time
	// steady is when the present run began: the statements up to the last one that have read this count, without a long pause
	// (mostGap) between two of them.
	steady time.Time
	// until is the time before which no process ends the token. Zero: unknown, because this process has not seen the count change.
	until time.Time
}

const (
	// A pause in a run is at most the time that the token lasts, divided by mostGap. A token may be ended once a run has lasted for that
	// time, divided by leastRun.
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

// sweep deletes the rows of tokens that nobody has kept for a week, and forgets the sightings of tokens about which this process asks no
// more. Both are left over when a term is replaced by another of the same lease. It does so at most once an hour.
func (r *Refreshes) sweep(ctx context.Context) error {
	now := r.now()
	r.mu.Lock()
	due := r.swept.IsZero() || now.Sub(r.swept) >= sweepEvery
	if due {
		r.swept = now
		for id, s := range r.seen {
			if now.Sub(s.newest) > 2*s.lasts+sweepEvery {
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

// Left implements [lease.Refreshes]. It promises at most a quarter of the time that a token lasts, and then the caller asks again. So
// there is a run of statements that is long enough to end the token.
func (r *Refreshes) Left(ctx context.Context, tokens []string) ([]time.Duration, error) {
	ids, at := r.parse(tokens)
	out := make([]time.Duration, len(tokens))
	var silent, beats []int64
	err := r.read(ctx, r.log.sql.readTerms, []any{r.log.id, ids}, func(id int64, s *sighting, began time.Time) {
		for _, i := range at[id] {
			out[i] = max(1, min(s.until.Sub(began), s.lasts/leastRun)) // 1 ns: it lives, but nothing is promised
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

// Silent implements [lease.Silences]: the time since this process has first read the present count of the token.
func (r *Refreshes) Silent(token string) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	id, err := strconv.ParseInt(token, 36, 64)
	if s := r.seen[id]; err == nil && s != nil {
		return r.now().Sub(s.since)
	}
	return 0
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

// read runs a statement that returns ids, counts and durations of tokens, and notes what it has read. Then it calls each for every
// token, with the time at which the statement began and with the lock held.
func (r *Refreshes) read(ctx context.Context, sql string, args []any, each func(id int64, s *sighting, began time.Time)) error {
	type row struct{ id, beats, lasts int64 }
	var rows []row
	began := r.now()
	err := r.log.rows(ctx, sql, args, func(from pgx.Rows) error {
		var w row
		var durable string // the statement has this column for its effect only
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

// note notes what a statement has read of a token. If the count is higher than in the statement before, the refresh came after that
// one had begun. A process ends the token only when it has seen the new count for as long as the token lasts, so the token
// lives for at least that long from the beginning of the statement before. The caller must hold the lock.
func (r *Refreshes) note(id, beats int64, lasts time.Duration, began, answered time.Time) *sighting {
	s := r.seen[id]
	switch {
	case s == nil || beats < s.beats: // a lower count: this answer has been overtaken by a newer one
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

// end ends those of the tokens whose counts are still these beats, and calls each for every one that it has ended.
func (r *Refreshes) end(ctx context.Context, ids, beats []int64, each func(id int64)) error {
	err := r.log.rows(ctx, r.log.sql.endTerms, []any{r.log.id, ids, beats}, func(from pgx.Rows) error {
		var id int64
		var durable string // as in read
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

// refreshError returns the error of a statement that has failed. It is always orbit.ErrUnavailable, even if the statement may have had
// an effect: after an error the caller believes nothing of a token, and a repetition does no harm.
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

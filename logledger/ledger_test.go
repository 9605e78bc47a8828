package logledger_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/logledger"
	"github.com/orbitsched/orbit/logledger/logtest"
)

var errBroken = errors.New("broken")

// faulty is a log whose appends fail as fail says; nil: they do not.
type faulty struct {
	*logtest.Handle
	fail    atomic.Pointer[error]
	appends atomic.Int64
}

// Append implements logledger.Log.
func (f *faulty) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	f.appends.Add(1)
	if err := f.fail.Load(); err != nil {
		return nil, *err
	}
	return f.Handle.Append(ctx, a)
}

func mark(key, value string) orbit.Proposal {
	return orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: key, Value: value}}}
}

func valueOf(s *orbit.State, key string) string {
	value, _ := s.Mark(key)
	return value
}

// TestHealthComesBack: while nothing can be appended, proposals are refused at once after the first has been patient, reads go
// on, and health comes back by itself.
func TestHealthComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faulty{Handle: (&logtest.Store{}).Open(logtest.Faults{})}
		var told []error // written by one goroutine, and read while that waits
		l := open(t, log, logledger.Options{Patience: time.Second, OnError: func(err error) { told = append(told, err) }})
		_, err := l.Propose(t.Context(), mark("a", "1"))
		require.NoError(t, err)
		require.NoError(t, l.Health())

		full := fmt.Errorf("%w: the store is full: %w", orbit.ErrUnavailable, errBroken)
		log.fail.Store(&full)
		start := time.Now()
		_, err = l.Propose(t.Context(), mark("b", "1"))
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		require.ErrorIs(t, err, errBroken)
		require.InDelta(t, time.Second, time.Since(start), float64(1100*time.Millisecond))
		require.ErrorIs(t, l.Health(), errBroken)
		start = time.Now()
		_, err = l.Propose(t.Context(), mark("b", "1"))
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		require.Zero(t, time.Since(start))
		s, err := l.Snapshot(t.Context())
		require.NoError(t, err)
		require.Equal(t, orbit.Revision(1), s.Revision())

		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, told, 1, "an outage is told of once")
		require.ErrorIs(t, told[0], errBroken)
		log.fail.Store(nil)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		require.NoError(t, l.Health())
		require.Len(t, told, 2, "and so is its end")
		require.ErrorIs(t, told[1], logledger.ErrBack)
		require.ErrorIs(t, told[1], errBroken, "it says what there was")
		require.Regexp(t, "works again after 1m[0-3]s", told[1])
		_, err = l.Propose(t.Context(), mark("b", "2"))
		require.NoError(t, err)
		require.Equal(t, "2", valueOf(snapshot(t, l), "b"))
	})
}

// unread is a log whose reads fail as fail says; nil: they do not. Its appends go on.
type unread struct {
	*logtest.Handle
	fail atomic.Pointer[error]
	news chan struct{}
}

// Tail implements logledger.Log.
func (u *unread) Tail(ctx context.Context) (logledger.Index, error) {
	if err := u.fail.Load(); err != nil {
		return 0, *err
	}
	return u.Handle.Tail(ctx)
}

// Read implements logledger.Log.
func (u *unread) Read(ctx context.Context, after logledger.Index) (logledger.Page, error) {
	if err := u.fail.Load(); err != nil {
		return logledger.Page{}, *err
	}
	return u.Handle.Read(ctx, after)
}

// Changed implements logledger.Log.
func (u *unread) Changed() <-chan struct{} { return u.news }

// TestHealthOfReads lets a store fail that nobody proposes to. Health says so after a Snapshot has failed, and also after the ledger has
// read by itself because the log told of something new. It is nil after the first answer.
func TestHealthOfReads(t *testing.T) {
	for _, ask := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			log := &unread{Handle: (&logtest.Store{}).Open(logtest.Faults{}), news: make(chan struct{}, 1)}
			var told []error // written by one goroutine, and read while that waits
			l := open(t, log, logledger.Options{Patience: time.Second, OnError: func(err error) { told = append(told, err) }})
			require.NoError(t, l.Health())
			gone := fmt.Errorf("%w: %w", orbit.ErrUnavailable, errBroken)
			log.fail.Store(&gone)
			since := time.Now().Format(time.RFC3339)
			if ask {
				_, err := l.Snapshot(t.Context())
				require.ErrorIs(t, err, orbit.ErrUnavailable)
			} else {
				log.news <- struct{}{}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			require.ErrorIs(t, l.Health(), errBroken)
			require.ErrorContains(t, l.Health(), since)
			require.Len(t, told, 1, "an outage is told of once")
			require.Equal(t, l.Health(), told[0])
			log.fail.Store(nil)
			if ask {
				snapshot(t, l)
				synctest.Wait()
			} else {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			require.NoError(t, l.Health())
			require.Len(t, told, 2, "and so is its end")
			require.ErrorIs(t, told[1], logledger.ErrBack)
			time.Sleep(time.Minute)
			synctest.Wait()
			require.Len(t, told, 2)
		})
	}
}

// TestHealthOfAppends: while the store takes no appends, its answers to reads do not make Health nil.
func TestHealthOfAppends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faulty{Handle: (&logtest.Store{}).Open(logtest.Faults{})}
		told := 0 // written by one goroutine, and read while that waits
		l := open(t, log, logledger.Options{Patience: time.Second, OnError: func(error) { told++ }})
		full := fmt.Errorf("%w: %w", orbit.ErrUnavailable, errBroken)
		log.fail.Store(&full)
		require.ErrorIs(t, propose(t, l, mark("a", "1")), orbit.ErrUnavailable)
		before := log.appends.Load()
		for range 1000 {
			snapshot(t, l)
			require.ErrorIs(t, l.Health(), errBroken)
			time.Sleep(ms)
			synctest.Wait()
		}
		require.LessOrEqual(t, log.appends.Load()-before, int64(2), "a Snapshot makes no append")
		require.Equal(t, 1, told)
	})
}

// TestReadFailsForGood: an error of a read that will not pass is told once, and stays.
func TestReadFailsForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &unread{Handle: (&logtest.Store{}).Open(logtest.Faults{}), news: make(chan struct{}, 1)}
		told := 0 // written by one goroutine, and read while that waits
		l := open(t, log, logledger.Options{OnError: func(error) { told++ }})
		failed := fmt.Errorf("%w: %w", logledger.ErrFailed, errBroken)
		log.fail.Store(&failed)
		log.news <- struct{}{}
		time.Sleep(time.Minute)
		require.ErrorIs(t, l.Health(), logledger.ErrFailed)
		require.ErrorIs(t, l.Health(), errBroken)
		require.Equal(t, 1, told)
		require.ErrorIs(t, propose(t, l, mark("a", "1")), orbit.ErrUnavailable)
	})
}

// TestFailedForGood: a log that has failed for good takes nothing more, and everybody is told.
func TestFailedForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &faulty{Handle: (&logtest.Store{}).Open(logtest.Faults{})}
		l := open(t, log, logledger.Options{OnError: func(error) {}})
		_, err := l.Propose(t.Context(), mark("a", "1"))
		require.NoError(t, err)
		waited := make(chan error, 1)
		go func() {
			_, err := l.Wait(t.Context(), 1)
			waited <- err
		}()
		synctest.Wait()
		failed := fmt.Errorf("%w: %w", logledger.ErrFailed, errBroken)
		log.fail.Store(&failed)
		_, err = l.Propose(t.Context(), mark("b", "1"))
		require.ErrorIs(t, err, orbit.ErrUnknown) // it may be there
		_, err = l.Propose(t.Context(), mark("c", "1"))
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		require.ErrorIs(t, l.Health(), errBroken)
		require.ErrorIs(t, <-waited, orbit.ErrUnavailable)
		before := log.appends.Load()
		time.Sleep(time.Minute)
		require.Equal(t, before, log.appends.Load(), "it is of no use to try again")
		require.Empty(t, valueOf(snapshot(t, l), "b"))
	})
}

// silent is a log that loses the answer to appends: before or after they are made.
type silent struct {
	*logtest.Handle
	// lose is how many appends lose their answer; made says that they are made all the same.
	lose atomic.Int64
	made bool
}

// Append implements logledger.Log.
func (s *silent) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	if s.lose.Add(-1) < 0 {
		return s.Handle.Append(ctx, a)
	}
	if s.made {
		_, _ = s.Handle.Append(ctx, a)
	}
	return nil, errBroken
}

// TestLostAnswers: what was appended although the answer was lost is answered with its revision, and what was not is appended
// again, each once.
func TestLostAnswers(t *testing.T) {
	for _, made := range []bool{false, true} {
		for _, lost := range []int64{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				store := &logtest.Store{}
				log := &silent{Handle: store.Open(logtest.Faults{}), made: made}
				l := open(t, log, logledger.Options{OnError: func(error) {}})
				for i := range 5 {
					log.lose.Store(lost)
					rev, err := l.Propose(t.Context(), mark("k", fmt.Sprint(i)))
					require.NoError(t, err)
					require.Equal(t, orbit.Revision(i+1), rev)
				}
				page, err := store.Open(logtest.Faults{}).Read(t.Context(), 0)
				require.NoError(t, err)
				require.Len(t, page.Entries, 5)
			})
		}
	}
}

// TestUnknownOutcome: after its patience a ledger says "unknown" of what it has sent, and once the store answers again it
// takes over what has become of it.
func TestUnknownOutcome(t *testing.T) {
	for _, made := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := &logtest.Store{}
			log := &silent{Handle: store.Open(logtest.Faults{}), made: made}
			l := open(t, log, logledger.Options{OnError: func(error) {}, Patience: time.Second})
			log.lose.Store(1)
			go func() {
				time.Sleep(time.Millisecond)
				log.Cut(true)
			}()
			p := mark("k", "v")
			_, err := l.Propose(t.Context(), p)
			require.ErrorIs(t, err, orbit.ErrUnknown)
			require.Error(t, l.Health())
			log.Cut(false)
			time.Sleep(5 * time.Second)
			require.NoError(t, l.Health())
			rev, err := l.Propose(t.Context(), p)
			require.NoError(t, err)
			require.Equal(t, orbit.Revision(1), rev)
			require.Equal(t, orbit.Revision(1), snapshot(t, l).Revision())
		})
	}
}

// TestRefusalsAreFresh: a refusal rests on a state that was the newest during the call, although the ledger has not heard of
// what others have committed.
func TestRefusalsAreFresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		near := open(t, store.Open(logtest.Faults{}), logledger.Options{})
		far := open(t, store.Open(logtest.Faults{Latency: 5 * ms}), logledger.Options{})
		remove := orbit.Proposal{Do: []orbit.Commitment{orbit.RemoveNode{Node: "n"}}}
		join := orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n"}}}}
		for range 20 {
			var refused *orbit.Rejection
			_, err := far.Propose(t.Context(), remove)
			require.ErrorAs(t, err, &refused)
			_, err = near.Propose(t.Context(), join)
			require.NoError(t, err)
			_, err = far.Propose(t.Context(), remove)
			require.NoError(t, err, "the node has joined before the call")
		}
	})
}

// TestSlowReaderJumps: a ledger that was stopped for long goes on from a checkpoint, and its history begins there.
func TestSlowReaderJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		writer := open(t, store.Open(logtest.Faults{}), logledger.Options{CheckpointEvery: 10})
		handle := store.Open(logtest.Faults{})
		reader := open(t, handle, logledger.Options{})
		commit := func(n int) {
			for i := range n {
				_, err := writer.Propose(t.Context(), mark("k", fmt.Sprint(i)))
				require.NoError(t, err)
				synctest.Wait() // so that checkpoints are made meanwhile
			}
		}
		commit(5)
		before := snapshot(t, reader).Revision()
		handle.Pause()
		commit(100)
		handle.Resume()
		require.Equal(t, snapshot(t, writer).Revision(), snapshot(t, reader).Revision())
		require.Equal(t, int64(1), reader.Stats().Jumps)
		_, err := reader.Changes(t.Context(), before)
		require.ErrorIs(t, err, orbit.ErrCompacted)
		commit(3)
		now := snapshot(t, reader).Revision()
		changes, err := reader.Changes(t.Context(), now-2)
		require.NoError(t, err)
		require.Len(t, changes, 2)
	})
}

// TestCheckpointsAreMadeInTurns: of several ledgers one makes each checkpoint, and the log stays short.
func TestCheckpointsAreMadeInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		var ledgers []*logledger.Ledger
		for range 3 {
			ledgers = append(ledgers, open(t, store.Open(logtest.Faults{Latency: ms}), logledger.Options{CheckpointEvery: 50}))
		}
		for i := range 500 {
			_, err := ledgers[i%3].Propose(t.Context(), mark("k", fmt.Sprint(i)))
			require.NoError(t, err)
		}
		made := int64(0)
		for _, l := range ledgers {
			made += l.Stats().Checkpoints
		}
		require.InDelta(t, 10, made, 2)
		log := store.Open(logtest.Faults{})
		_, err := log.Read(t.Context(), 300)
		require.ErrorIs(t, err, logledger.ErrTrimmed)
		late := open(t, log, logledger.Options{})
		require.Less(t, late.Stats().Recovered, int64(110))
		require.Equal(t, orbit.Revision(500), snapshot(t, late).Revision())
	})
}

// later is the log of a process of a later version, which writes entries that this version cannot read. The ledger on it sees all
// entries as its own. It has no posts, or the other process would write its entries for it.
type later struct{ logledger.Log }

func (l later) Append(ctx context.Context, a logledger.Append) ([]logledger.Post, error) {
	a.Data = append([]byte{2}, a.Data[1:]...)
	return l.Log.Append(ctx, a)
}

func (l later) Read(ctx context.Context, after logledger.Index) (logledger.Page, error) {
	page, err := l.Log.Read(ctx, after)
	page.Entries = slices.Clone(page.Entries) // they are the store's
	for i, e := range page.Entries {
		page.Entries[i] = append([]byte{1}, e[1:]...)
	}
	return page, err
}

// TestNewerVersions: a ledger stops at an entry that a newer version has written, says so, and calls nothing damaged; so does
// one that is opened then. Its process goes on with all that both have committed when it is started again in the newer version.
func TestNewerVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		l := open(t, store.Open(logtest.Faults{}), logledger.Options{OnError: func(error) {}})
		_, err := l.Propose(t.Context(), mark("k", "old"))
		require.NoError(t, err)
		newer := open(t, later{store.Open(logtest.Faults{})}, logledger.Options{OnError: func(error) {}})
		_, err = newer.Propose(t.Context(), mark("new", "new"))
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.ErrorIs(t, l.Health(), logledger.ErrVersion)
		require.NotErrorIs(t, l.Health(), logledger.ErrCorrupt)
		_, err = l.Propose(t.Context(), mark("k", "older"))
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		require.ErrorIs(t, err, logledger.ErrVersion)
		_, err = logledger.Open(t.Context(), store.Open(logtest.Faults{}), logledger.Options{})
		require.ErrorIs(t, err, logledger.ErrVersion)
		require.NotErrorIs(t, err, logledger.ErrCorrupt)
		require.NoError(t, l.Close())
		require.NoError(t, newer.Health(), "the others go on")

		upgraded := open(t, later{store.Open(logtest.Faults{})}, logledger.Options{OnError: func(error) {}})
		_, err = upgraded.Propose(t.Context(), mark("k", "upgraded"))
		require.NoError(t, err)
		state := snapshot(t, newer)
		k, _ := state.Mark("k")
		added, _ := state.Mark("new")
		require.Equal(t, "upgraded", k)
		require.Equal(t, "new", added)
	})
}

// TestUnknownFields: a commitment, a field or a record that this version does not know was written by a newer version.
func TestUnknownFields(t *testing.T) {
	for _, line := range []string{
		`{"revision":1,"do":{"teleport":{"capsule":"c"}}}`, `{"revision":1,"do":{"mark":{"key":"k","colour":"red"}}}`, `{"revision":1,"do":{"mark":{"key":"k"}},"cause":"x"}`,
		`{"revision":1,"do":{"submit":{"ids":["c"],"spec":{"gravity":1}}}}`,
	} {
		_, err := logledger.DecodeEntry([]byte(line + "\n"))
		require.ErrorIs(t, err, logledger.ErrVersion, line)
	}
	for _, line := range []string{`{"revision":1,"do":{"mark":{"key":7}}}`, `{"revision":1`, `{"revision":1,"do":{}}`, `{"revision":1}{}`} {
		_, err := logledger.DecodeEntry([]byte(line + "\n"))
		require.ErrorIs(t, err, logledger.ErrCorrupt, line)
		require.NotErrorIs(t, err, logledger.ErrVersion, line)
	}
}

// TestDamage: entries and checkpoints that nobody has written are ErrCorrupt.
func TestDamage(t *testing.T) {
	store := &logtest.Store{}
	log := store.Open(logtest.Faults{})
	require.NoError(t, log.SaveCheckpoint(t.Context(), 0, func(w io.Writer) error {
		_, err := w.Write([]byte{1, 'x', 'y'})
		return err
	}))
	_, err := logledger.Open(t.Context(), log, logledger.Options{})
	require.ErrorIs(t, err, logledger.ErrCorrupt)

	store = &logtest.Store{}
	log = store.Open(logtest.Faults{})
	l := open(t, log, logledger.Options{OnError: func(error) {}})
	_, err = l.Propose(t.Context(), mark("k", "v"))
	require.NoError(t, err)
	page, err := log.Read(t.Context(), 0)
	require.NoError(t, err)
	for i := range page.Entries[0] {
		damaged := bytes.Clone(page.Entries[0])
		damaged[i] ^= 0xff
		if e, err := logledger.DecodeEntry(damaged); err != nil {
			require.True(t, errors.Is(err, logledger.ErrCorrupt) || errors.Is(err, logledger.ErrVersion), "byte %d: %v", i, err)
		} else {
			_ = e // the byte is part of an id or a text
		}
	}
}

// TestMismatch: limits and names are those with which the ledger was made.
func TestMismatch(t *testing.T) {
	store := &logtest.Store{}
	open(t, store.Open(logtest.Faults{}), logledger.Options{Bounds: orbit.Limits{Terminal: 7}, Dimensions: [orbit.Dimensions]string{"cpu"}})
	l := open(t, store.Open(logtest.Faults{}), logledger.Options{Dimensions: [orbit.Dimensions]string{"cpu"}})
	require.Equal(t, 7, l.Limits().Terminal)
	for _, o := range []logledger.Options{{Bounds: orbit.Limits{Terminal: 8}}, {Dimensions: [orbit.Dimensions]string{"core"}}} {
		_, err := logledger.Open(t.Context(), store.Open(logtest.Faults{}), o)
		require.ErrorIs(t, err, logledger.ErrMismatch)
	}
}

// TestClose: what was proposed before Close is committed or refused, and calls that come later are told that the ledger is
// closed.
func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		l, err := logledger.Open(t.Context(), store.Open(logtest.Faults{Latency: ms}), logledger.Options{})
		require.NoError(t, err)
		outcomes := make(chan error, 10)
		for i := range 10 {
			go func() {
				_, err := l.Propose(t.Context(), mark("k", fmt.Sprint(i)))
				outcomes <- err
			}()
		}
		waited := make(chan error, 1)
		go func() {
			_, err := l.Wait(t.Context(), 1000)
			waited <- err
		}()
		synctest.Wait()
		require.NoError(t, l.Close())
		require.NoError(t, l.Close())
		for range 10 {
			require.NoError(t, <-outcomes)
		}
		require.ErrorIs(t, <-waited, logledger.ErrClosed)
		_, err = l.Propose(t.Context(), mark("k", "late"))
		require.ErrorIs(t, err, logledger.ErrClosed)
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		_, err = l.Snapshot(t.Context())
		require.ErrorIs(t, err, logledger.ErrClosed)
		require.ErrorIs(t, l.Checkpoint(t.Context()), logledger.ErrClosed)
		require.Equal(t, orbit.Revision(10), snapshot(t, open(t, store.Open(logtest.Faults{}), logledger.Options{})).Revision())
	})
}

// TestCloseWithoutAStore: Close ends soon also if the store does not answer.
func TestCloseWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := (&logtest.Store{}).Open(logtest.Faults{})
		l, err := logledger.Open(t.Context(), log, logledger.Options{OnError: func(error) {}})
		require.NoError(t, err)
		log.Cut(true)
		outcome := make(chan error, 1)
		go func() {
			_, err := l.Propose(t.Context(), mark("k", "v"))
			outcome <- err
		}()
		time.Sleep(100 * ms)
		start := time.Now()
		require.NoError(t, l.Close())
		require.Less(t, time.Since(start), 3*time.Second)
		require.ErrorIs(t, <-outcome, orbit.ErrUnknown)
	})
}

// TestCallersGoOn: a caller whose context ends is told at once, may use its proposals again, and changes nothing that is
// committed later.
func TestCallersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		log := store.Open(logtest.Faults{})
		l := open(t, log, logledger.Options{})
		log.Pause()
		batch := []orbit.Proposal{mark("a", "1"), mark("b", "1"), {Do: []orbit.Commitment{orbit.Mark{}}}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		defer cancel()
		out := l.ProposeBatch(ctx, batch)
		require.ErrorIs(t, out[0].Err, orbit.ErrUnknown)
		require.ErrorIs(t, out[2].Err, orbit.ErrInvalid)
		batch[0].Do[0] = orbit.Mark{Key: "a", Value: "changed"}
		batch[1] = orbit.Proposal{}
		log.Resume()
		time.Sleep(time.Second)
		s := snapshot(t, l)
		require.Equal(t, "1", valueOf(s, "a"))
		require.Equal(t, "1", valueOf(s, "b"))
	})
}

// lost is a log that loses posts' answers, and stores the post later.
type lost struct {
	*logtest.Handle
	posts atomic.Int64
	late  []logledger.Post
}

// Post implements logledger.Poster.
func (l *lost) Post(_ context.Context, p logledger.Post) error {
	p.Data = bytes.Clone(p.Data)
	l.late = append(l.late, p)
	l.posts.Add(1)
	return errBroken
}

// TestLatePosts: a post that arrives when its ledger has appended the proposals by itself has no effect, also where a proposal
// was refused that could be committed now.
func TestLatePosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &logtest.Store{}
		other := open(t, store.Open(logtest.Faults{}), logledger.Options{})
		log := &lost{Handle: store.Open(logtest.Faults{})}
		l := open(t, log, logledger.Options{OnError: func(error) {}})
		require.NoError(t, propose(t, other, mark("hot", "1"))) // so that l posts
		out := l.ProposeBatch(t.Context(), []orbit.Proposal{mark("a", "1"), {Do: []orbit.Commitment{orbit.RemoveNode{Node: "n"}}}})
		require.NoError(t, out[0].Err)
		require.ErrorIs(t, out[1].Err, orbit.ErrInfeasible)
		require.Equal(t, int64(1), log.posts.Load())
		time.Sleep(100 * ms)
		require.NoError(t, propose(t, other, mark("a", "2")))
		require.NoError(t, propose(t, other, orbit.Proposal{Do: []orbit.Commitment{orbit.PutNode{Node: orbit.Node{ID: "n"}}}}))
		require.NoError(t, log.Handle.Post(t.Context(), log.late[0])) // it comes now
		require.NoError(t, propose(t, other, mark("b", "1")))
		time.Sleep(100 * ms)
		s := snapshot(t, other)
		require.Equal(t, "2", valueOf(s, "a"))
		require.NotNil(t, s.Node("n"), "the refused proposal has been committed")
	})
}

// TestPostThatCannotBeRead: a ledger whose turn it is leaves a post of a newer version, and a damaged one, to its writer, and goes on.
func TestPostThatCannotBeRead(t *testing.T) {
	for name, data := range map[string][]byte{"newer": {9, 9, 9}, "damaged": {1, 9}, "empty": {}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := &logtest.Store{}
				l := open(t, store.Open(logtest.Faults{}), logledger.Options{})
				require.NoError(t, propose(t, l, mark("a", "1"))) // so that it is its turn
				id := logledger.PostID{Writer: logledger.WriterID{1}, Number: 1}
				require.NoError(t, store.Open(logtest.Faults{}).Post(t.Context(), logledger.Post{PostID: id, Data: data}))
				time.Sleep(time.Second)
				require.NoError(t, propose(t, l, mark("a", "2")))
				require.Equal(t, "2", valueOf(snapshot(t, l), "a"))
			})
		})
	}
}

// propose proposes once.
func propose(t *testing.T, l *logledger.Ledger, p orbit.Proposal) error {
	_, err := l.Propose(t.Context(), p)
	return err
}

// TestPatientlySaysWhy: if the caller's context ends before the patience, the error also says what was wrong last.
func TestPatientlySaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := logledger.Patiently(ctx, 0, func() (log any, final bool, err error) {
			if ctx.Err() != nil {
				return nil, false, fmt.Errorf("%w: %w", orbit.ErrUnavailable, ctx.Err())
			}
			return nil, false, fmt.Errorf("%w: connection refused: %w", orbit.ErrUnavailable, errBroken)
		})
		require.ErrorIs(t, err, orbit.ErrUnavailable)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, errBroken)
		require.ErrorContains(t, err, "context deadline exceeded; last: ")
	})
}

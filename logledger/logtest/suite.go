package logtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/orbitsched/orbit/internal/harness"
	"github.com/orbitsched/orbit/logledger"
)

// Suite has the settings with which a log is checked.
type Suite struct {
	// Peer opens another handle on the same log, as a second process would. Nil: one handle at a time can be open.
	Peer func(t *testing.T, log logledger.Log) logledger.Log
	// Reopen closes a handle, and opens the log anew. Nil: the log does not outlive its handle.
	Reopen func(t *testing.T, log logledger.Log) logledger.Log
	// Patience is how long a rule waits for what must come; default 10 s.
	Patience time.Duration
}

// Run checks the logs that open returns against every rule, each in a subtest of its name. Open must return a fresh, empty
// log each time; it may use the subtest's t to clean up.
func (s Suite) Run(t *testing.T, open func(t *testing.T) logledger.Log) {
	t.Helper()
	if s.Patience == 0 {
		s.Patience = 10 * time.Second
	}
	h := harness.Suite[*trial]{Rules: rules, Try: func(t *testing.T, r *harness.Rule[*trial]) *harness.Case { return s.try(t, r, open) }}
	h.Run(t)
}

// try checks one rule.
func (s *Suite) try(t *testing.T, r *harness.Rule[*trial], open func(t *testing.T) logledger.Log) *harness.Case {
	ctx, cancel := context.WithTimeout(t.Context(), 6*s.Patience)
	defer cancel()
	x := &trial{suite: s, t: t, ctx: ctx, log: open(t)}
	if x.peer = x.log; s.Peer != nil {
		x.peer = s.Peer(t, x.log)
	}
	return harness.Try(7*s.Patience, func(c *harness.Case) {
		x.Case = c
		r.Check(x)
	})
}

// trial is one rule under check.
type trial struct {
	*harness.Case
	suite *Suite
	t     *testing.T
	ctx   context.Context
	// log and peer are two handles on one log, or the same one twice.
	log, peer logledger.Log
}

// rules are all rules.
var rules = []harness.Rule[*trial]{
	harness.Define("append", "", "an entry is written at the next free index, and at no other",
		"two ledgers write to one index, and each answers its callers", checkAppend),
	harness.Define("read", "", "Read returns the entries as they were written, in order and without gaps, to all handles",
		"a ledger applies half a history", checkRead),
	harness.Define("race", "", "of appends that race for an index one wins, and Read shows whose",
		"two ledgers believe that they have won", checkRace),
	harness.Define("late", "", "an append that comes late, at an index that is taken or not next, writes nothing",
		"an entry that its ledger has given up changes the history afterwards", checkLate),
	harness.Define("large", "", "an entry may be empty, or have three million bytes",
		"a large proposal is judged, and can never be stored", checkLarge),
	harness.Define("changed", "", "a handle hears of entries of others, also of the last one",
		"a ledger sleeps, and its readers see an old state", checkChanged),
	harness.Define("posts", "", "a post waits until an entry settles it, for all handles, oldest first",
		"a ledger that is far from the store waits for ever, or its proposals are committed twice", checkPosts),
	harness.Define("checkpoint", "", "the newest checkpoint replaces older ones, and never a newer one",
		"a process that is slow takes the ledger back", checkCheckpoint),
	harness.Define("checkpoint-torn", "", "a checkpoint that could not be written to its end is none",
		"a ledger opens half a state", checkTorn),
	harness.Define("trim", "", "entries that are trimmed are ErrTrimmed, those after them stay, and so does the newest one",
		"a ledger goes on over a gap, or the index begins anew", checkTrim),
	harness.Define("context", "", "no call outlives its context for long",
		"a ledger cannot be closed", checkContext),
	harness.Define("reopen", "", "what was returned is there after the handle was closed and opened again",
		"an answered commit is lost", checkReopen),
}

// append appends an entry that must succeed.
func (x *trial) append(log logledger.Log, at logledger.Index, data string, settled ...logledger.PostID) []logledger.Post {
	posts, err := log.Append(x.ctx, logledger.Append{Index: at, Data: []byte(data), Settled: settled})
	if err != nil {
		x.Failf("Append at index %d: %v", at, err)
	}
	return posts
}

// refused asks for an append that must fail with ErrTaken.
func (x *trial) refused(log logledger.Log, at logledger.Index) {
	if _, err := log.Append(x.ctx, logledger.Append{Index: at, Data: []byte("late")}); !errors.Is(err, logledger.ErrTaken) {
		x.Failf("Append at index %d: want ErrTaken, got %v", at, err)
	}
}

// all reads all entries after an index, page by page, and the posts that wait.
func (x *trial) all(log logledger.Log, after logledger.Index) (entries []string, posts []logledger.Post) {
	for {
		page, err := log.Read(x.ctx, after)
		if err != nil {
			x.Failf("Read after %d: %v", after, err)
		}
		for _, e := range page.Entries {
			entries = append(entries, string(e))
		}
		if after += logledger.Index(len(page.Entries)); !page.More {
			return entries, page.Posts
		}
		if len(page.Entries) == 0 {
			x.Failf("Read after %d says that there is more, and returns nothing", after)
		}
	}
}

// has compares the entries after an index.
func (x *trial) has(log logledger.Log, after logledger.Index, want ...string) {
	if got, _ := x.all(log, after); !slices.Equal(got, want) {
		x.Failf("entries after %d are %.300q, want %.300q", after, got, want)
	}
	tail, err := log.Tail(x.ctx)
	if err != nil || tail != after+logledger.Index(len(want)) {
		x.Failf("Tail is %d, %v; want %d", tail, err, int(after)+len(want))
	}
}

func checkAppend(x *trial) {
	x.has(x.log, 0)
	x.refused(x.log, 2)
	x.append(x.log, 1, "a")
	x.refused(x.log, 1)
	x.refused(x.log, 3)
	x.append(x.peer, 2, "b")
	x.refused(x.log, 2)
	x.refused(x.peer, 1)
	x.has(x.log, 0, "a", "b")
	x.has(x.peer, 1, "b")
	x.has(x.peer, 2)
}

func checkRead(x *trial) {
	var want []string
	for i := range 40 {
		data := fmt.Sprintf("%d %s", i, bytes.Repeat([]byte{byte(i), 0, '\n'}, i*997))
		want = append(want, data)
		x.append(x.log, logledger.Index(i+1), data)
	}
	x.has(x.peer, 0, want...)
	x.has(x.log, 0, want...)
	x.has(x.peer, 38, want[38:]...)
	data := []byte("mine")
	if _, err := x.log.Append(x.ctx, logledger.Append{Index: 41, Data: data}); err != nil {
		x.Failf("Append: %v", err)
	}
	copy(data, "yours")
	x.has(x.peer, 40, "mine")
	x.has(x.log, 40, "mine")
}

func checkRace(x *trial) {
	const rounds, racers = 50, 4
	won := make([][]int, racers)
	var wg sync.WaitGroup
	for k := range racers {
		log := []logledger.Log{x.log, x.peer}[k%2]
		wg.Go(func() {
			for i := range rounds {
				_, err := log.Append(x.ctx, logledger.Append{Index: logledger.Index(i + 1), Data: fmt.Append(nil, k)})
				switch {
				case err == nil:
					won[k] = append(won[k], i)
				case !errors.Is(err, logledger.ErrTaken):
					won[k] = append(won[k], -1)
				}
				for tail := logledger.Index(0); tail < logledger.Index(i+1) && x.ctx.Err() == nil; {
					tail, _ = log.Tail(x.ctx)
				}
			}
		})
	}
	wg.Wait()
	entries, _ := x.all(x.peer, 0)
	owner := map[int]int{}
	for k, list := range won {
		for _, i := range list {
			if other, twice := owner[i]; i < 0 || twice {
				x.Failf("index %d: racers %d and %d have won, or the append has failed", i+1, other, k)
			}
			owner[i] = k
		}
	}
	for i := range rounds {
		if i >= len(entries) || entries[i] != strconv.Itoa(owner[i]) {
			x.Failf("index %d: racer %d was told that it has won; the entries are %v", i+1, owner[i], entries)
		}
	}
}

func checkLate(x *trial) {
	x.append(x.log, 1, "a")
	x.append(x.log, 2, "b")
	for _, at := range []logledger.Index{0, 1, 2, 4, 1 << 40} {
		x.refused(x.peer, at)
	}
	x.append(x.log, 3, "c")
	x.refused(x.peer, 3)
	x.has(x.peer, 0, "a", "b", "c")
}

func checkLarge(x *trial) {
	large := make([]byte, 3_000_000)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	x.append(x.log, 1, "")
	x.append(x.log, 2, string(large))
	x.append(x.peer, 3, "c")
	x.has(x.peer, 0, "", string(large), "c")
	x.refused(x.log, 2)
}

func checkChanged(x *trial) {
	if x.suite.Peer == nil {
		return
	}
	for i := range logledger.Index(20) {
		x.append(x.log, i+1, "x")
		for {
			tail, err := x.peer.Tail(x.ctx)
			if err == nil && tail == i+1 {
				break
			}
		}
		x.hears(i + 1)
	}
}

// hears waits until the peer is told that something has changed.
func (x *trial) hears(what any) {
	select {
	case <-x.peer.Changed():
	case <-time.After(x.suite.Patience):
		x.Failf("the other handle was not told of %v within %v", what, x.suite.Patience)
	}
}

func checkPosts(x *trial) {
	log, ok := x.log.(logledger.Poster)
	if !ok {
		return
	}
	peer := x.peer.(logledger.Poster)
	post := func(log logledger.Poster, writer, n byte, data string) logledger.PostID {
		id := logledger.PostID{Writer: logledger.WriterID{writer}, Number: uint64(n)}
		if err := log.Post(x.ctx, logledger.Post{PostID: id, Data: []byte(data)}); err != nil {
			x.Failf("Post: %v", err)
		}
		return id
	}
	waits := func(posts []logledger.Post, want ...string) {
		var got []string
		for _, p := range posts {
			got = append(got, fmt.Sprintf("%d/%d %s", p.Writer[0], p.Number, p.Data))
		}
		if !slices.Equal(got, want) {
			x.Failf("posts are %q, want %q", got, want)
		}
	}
	first := post(log, 9, 1, "a")
	if x.suite.Peer != nil {
		x.hears("a post")
	}
	second := post(peer, 1, 7, "b\x00")
	_, posts := x.all(x.log, 0)
	waits(posts, "9/1 a", "1/7 b\x00")
	waits(x.append(x.log, 1, "x"), "9/1 a", "1/7 b\x00")
	if _, err := x.peer.Append(x.ctx, logledger.Append{Index: 1, Settled: []logledger.PostID{first}}); !errors.Is(err, logledger.ErrTaken) {
		x.Failf("Append at a taken index: %v", err)
	}
	_, posts = x.all(x.peer, 0)
	waits(posts, "9/1 a", "1/7 b\x00")
	third := post(log, 9, 2, "c")
	waits(x.append(x.peer, 2, "y", first, logledger.PostID{Number: 3}), "1/7 b\x00", "9/2 c")
	waits(x.append(x.log, 3, "z", second, third, first))
	_, posts = x.all(x.peer, 3)
	waits(posts)
}

// save saves a checkpoint.
func (x *trial) save(log logledger.Log, at logledger.Index, data string) error {
	return log.SaveCheckpoint(x.ctx, at, func(w io.Writer) error {
		for half := range slices.Chunk([]byte(data), max(1, len(data)/2)) {
			if _, err := w.Write(half); err != nil {
				return err
			}
		}
		return nil
	})
}

// newest compares the newest checkpoint.
func (x *trial) newest(log logledger.Log, at logledger.Index, data string) {
	got, r, err := log.Checkpoint(x.ctx)
	if err != nil {
		x.Failf("Checkpoint: %v", err)
	}
	text, err := io.ReadAll(r)
	if err = errors.Join(err, r.Close()); err != nil || got != at || string(text) != data {
		x.Failf("checkpoint at %d with %d bytes, %v; want one at %d with %d bytes, as written", got, len(text), err, at, len(data))
	}
}

func checkCheckpoint(x *trial) {
	if _, _, err := x.log.Checkpoint(x.ctx); !errors.Is(err, logledger.ErrNoCheckpoint) {
		x.Failf("Checkpoint of a new log: want ErrNoCheckpoint, got %v", err)
	}
	large := string(bytes.Repeat([]byte("0123456789abcdef"), 1<<18)) // 4 MiB
	for _, step := range []struct {
		log  logledger.Log
		at   logledger.Index
		data string
		want error
	}{
		{x.log, 0, "empty", nil}, {x.peer, 0, "again", logledger.ErrTaken}, {x.peer, 3, large, nil}, {x.log, 3, "b", logledger.ErrTaken},
		{x.log, 2, "c", logledger.ErrTaken}, {x.log, 5, "d", nil},
	} {
		for at := step.at; at > 0; at-- { // a checkpoint comes after its entry
			if tail, err := x.log.Tail(x.ctx); err != nil || tail >= step.at {
				break
			} else {
				x.append(x.log, tail+1, "x")
			}
		}
		if err := x.save(step.log, step.at, step.data); !errors.Is(err, step.want) {
			x.Failf("SaveCheckpoint at %d: want %v, got %v", step.at, step.want, err)
		}
		if step.want == nil {
			x.newest(x.log, step.at, step.data)
			x.newest(x.peer, step.at, step.data)
		}
	}
	x.newest(x.peer, 5, "d")
}

func checkTorn(x *trial) {
	x.append(x.log, 1, "x")
	torn := errors.New("torn")
	err := x.log.SaveCheckpoint(x.ctx, 1, func(w io.Writer) error {
		_, err := w.Write(make([]byte, 3<<20))
		return errors.Join(err, torn)
	})
	if !errors.Is(err, torn) {
		x.Failf("SaveCheckpoint: want the error of its writer, got %v", err)
	}
	if _, _, err := x.peer.Checkpoint(x.ctx); !errors.Is(err, logledger.ErrNoCheckpoint) {
		x.Failf("Checkpoint: want ErrNoCheckpoint, got %v", err)
	}
	if err := x.save(x.peer, 1, "whole"); err != nil {
		x.Failf("SaveCheckpoint: %v", err)
	}
	x.newest(x.log, 1, "whole")
}

func checkTrim(x *trial) {
	for i := range logledger.Index(10) {
		x.append(x.log, i+1, fmt.Sprint(i+1))
	}
	if err := x.save(x.log, 8, "state"); err != nil {
		x.Failf("SaveCheckpoint: %v", err)
	}
	for _, upTo := range []logledger.Index{4, 2, 0} {
		if err := x.peer.Trim(x.ctx, upTo); err != nil {
			x.Failf("Trim up to %d: %v", upTo, err)
		}
	}
	for after := range logledger.Index(4) { // these may be gone
		if page, err := x.log.Read(x.ctx, after); err == nil && string(page.Entries[0]) != fmt.Sprint(after+1) || err != nil && !errors.Is(err, logledger.ErrTrimmed) {
			x.Failf("Read after %d, trimmed: %q, %v", after, page.Entries, err)
		}
	}
	x.has(x.log, 4, "5", "6", "7", "8", "9", "10")
	if err := x.log.Trim(x.ctx, 100); err != nil {
		x.Failf("Trim up to 100: %v", err)
	}
	x.has(x.peer, 9, "10")
	x.refused(x.peer, 10)
	x.refused(x.peer, 1)
	x.append(x.peer, 11, "11")
	x.has(x.log, 9, "10", "11")
	x.newest(x.log, 8, "state")
}

func checkContext(x *trial) {
	ctx, cancel := context.WithCancel(x.ctx)
	cancel()
	calls := map[string]func() error{
		"Read":           func() error { _, err := x.log.Read(ctx, 0); return err },
		"Tail":           func() error { _, err := x.log.Tail(ctx); return err },
		"Append":         func() error { _, err := x.log.Append(ctx, logledger.Append{Index: 7}); return err },
		"Trim":           func() error { return x.log.Trim(ctx, 0) },
		"SaveCheckpoint": func() error { return x.log.SaveCheckpoint(ctx, 0, func(io.Writer) error { return nil }) },
		"Checkpoint":     func() error { _, _, err := x.log.Checkpoint(ctx); return err },
	}
	for name, call := range calls {
		done := make(chan struct{})
		go func() {
			_ = call() // with what error does not matter
			close(done)
		}()
		select {
		case <-done:
		case <-time.After(x.suite.Patience):
			x.Failf("%s goes on %v after its context has ended", name, x.suite.Patience)
		}
	}
}

func checkReopen(x *trial) {
	if x.suite.Reopen == nil {
		return
	}
	if x.peer != x.log {
		if err := x.peer.Close(); err != nil {
			x.Failf("Close: %v", err)
		}
	}
	for i := range logledger.Index(6) {
		x.append(x.log, i+1, fmt.Sprint("entry ", i+1))
		if i == 2 {
			if err := x.save(x.log, 2, "state"); err != nil {
				x.Failf("SaveCheckpoint: %v", err)
			}
		}
		if i%2 == 1 {
			x.log = x.suite.Reopen(x.t, x.log)
		}
		x.has(x.log, i, fmt.Sprint("entry ", i+1))
	}
	x.newest(x.log, 2, "state")
	x.has(x.log, 2, "entry 3", "entry 4", "entry 5", "entry 6")
	x.refused(x.log, 6)
}

package itest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/etcdledger/itest/audit"
	"github.com/orbitsched/orbit/etcdledger/itest/process"
	sample "github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/logledger"
)

// clients is how many processes share a ledger, workers how many calls each of them makes at a time.
const (
	clients = 4
	workers = 3
)

// call is a call of a process, with its answer.
type call struct {
	deed deed
	id   orbit.ProposalID
	// began and ended are times of the machine's monotonic clock; the answer counts only if the call has ended.
	began, ended int64
	answer       answer
}

// remote is a client in a process of its own, as this process sees it.
type remote struct {
	*process.Process
	round  *round
	wires  []*wire
	rested chan struct{}
	sights chan sight
	// open are the calls that have no answer yet. It is guarded by the round's mu.
	open map[int64]*call
}

// heard handles an event of the process.
func (r *remote) heard(line string) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		r.round.t.Errorf("a client says %q: %v", line, err)
		return
	}
	switch {
	case e.Rested:
		close(r.rested)
	case e.Sight != nil:
		r.sights <- *e.Sight
	case e.Call > 0:
		r.round.note(r, &e)
	}
}

// tell tells the process something. It must not have ended by itself.
func (r *remote) tell(what string) {
	require.NoError(r.round.t, errors.Join(r.Tell(what), r.Err()))
}

// round is a ledger that four processes use while they, the store and the network fail.
type round struct {
	t       *testing.T
	store   mortalStore
	rng     *rand.Rand
	name    string
	remotes []*remote
	// strikes counts the strikes by kind.
	strikes map[string]int

	mu sync.Mutex // guards the fields below
	// calls are all calls of all processes, those of killed ones included; committed is how many were answered with a commit.
	calls     []*call
	committed int
}

// note keeps a call, or its answer.
func (r *round) note(from *remote, e *event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.Deed != nil {
		c := &call{deed: *e.Deed, id: e.ID, began: e.At}
		from.open[e.Call] = c
		r.calls = append(r.calls, c)
		return
	}
	c := from.open[e.Call]
	delete(from.open, e.Call)
	c.answer, c.ended = *e.Answer, e.At
	if c.answer.Kind == audit.Committed && !c.deed.reads() {
		r.committed++
	}
}

// site is how a process reaches the ledger over these addresses. Half of the processes have little time and patience.
func (r *round) site(over []string) site {
	s := r.store.site(r.name, over)
	s.Timeout, s.Patience = time.Second, 3*time.Second
	if r.rng.IntN(2) == 0 {
		s.Timeout, s.Patience = 200*time.Millisecond, 300*time.Millisecond
	}
	s.CheckpointEvery = 60 + r.rng.IntN(240)
	return s
}

// start starts a process over wires.
func (r *round) start(wires []*wire) *remote {
	var over []string
	for _, w := range wires {
		over = append(over, w.address())
	}
	one := &remote{round: r, wires: wires, rested: make(chan struct{}), sights: make(chan sight, 1), open: map[int64]*call{}}
	var err error
	one.Process, err = process.Start(clientRole, clientConfig{Site: r.site(over), Seed: r.rng.Uint64(), Workers: workers}, one.heard)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { _ = one.Kill() })
	return one
}

// progress waits until there are more commits.
func (r *round) progress() {
	count := func() int {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.committed
	}
	target := count() + 10
	require.Eventually(r.t, func() bool { return count() >= target }, time.Minute, 2*time.Millisecond, "nothing gets on after %v", r.strikes)
}

// rest waits for a time between 50 ms and 3 s, short ones more often.
func (r *round) rest() {
	time.Sleep(time.Duration(float64(50*time.Millisecond) * math.Pow(60, r.rng.Float64())))
}

// kinds are the kinds of strikes.
var kinds = []func(*round) string{
	func(r *round) string {
		r.replace(r.rng.IntN(clients))
		return "kill a process"
	},
	func(r *round) string {
		defer r.freeze()()
		r.rest()
		return "pause a process"
	},
	func(r *round) string {
		what, restart := r.store.kill(r.rng)
		defer restart()
		r.rest()
		return what
	},
	func(r *round) string {
		what, resume := r.store.pause(r.rng)
		defer resume()
		r.rest()
		return what
	},
	func(r *round) string {
		what, restart := r.store.kill(r.rng)
		defer restart()
		r.replace(r.rng.IntN(clients))
		return what + " and a process"
	},
	func(r *round) string { // the process has sent what the store will do when the process is dead
		what, resume := r.store.pause(r.rng)
		defer resume()
		time.Sleep(20 * time.Millisecond)
		r.replace(r.rng.IntN(clients))
		return what + ", kill a process"
	},
	func(r *round) string {
		wires := r.some()
		each(wires, func(w *wire) { w.set(true, false) })
		defer each(wires, func(w *wire) { w.set(false, false) })
		r.rest()
		return "cut connections"
	},
	func(r *round) string {
		wires := r.some()
		each(wires, func(w *wire) { w.set(false, true) })
		defer each(wires, func(w *wire) { w.set(false, false) })
		r.rest()
		return "lose answers"
	},
	func(r *round) string { // the processes go on over new connections
		wires := r.some()
		each(wires, (*wire).hold)
		defer each(wires, (*wire).deliver)
		time.Sleep(50 * time.Millisecond)
		each(wires, (*wire).abandon)
		r.rest()
		return "deliver late"
	},
}

// replace kills a process, and starts another one in its place.
func (r *round) replace(i int) {
	require.NoError(r.t, r.remotes[i].Kill())
	r.remotes[i] = r.start(r.remotes[i].wires)
}

// freeze pauses one process until the function that it returns is called.
func (r *round) freeze() (resume func()) {
	one := r.remotes[r.rng.IntN(clients)]
	require.NoError(r.t, one.Pause())
	return func() { require.NoError(r.t, one.Resume()) }
}

// some returns the wires of one process, or of all.
func (r *round) some() (wires []*wire) {
	i := r.rng.IntN(2 * clients)
	for j, one := range r.remotes {
		if i == j || i >= clients {
			wires = append(wires, one.wires...)
		}
	}
	return wires
}

// each does the same with several wires.
func each(wires []*wire, do func(*wire)) {
	for _, w := range wires {
		do(w)
	}
}

// rage strikes n times, each kind as often as others, and waits for progress after each strike.
func (r *round) rage(n int) {
	var order []int
	r.progress()
	for range n {
		if len(order) == 0 {
			order = r.rng.Perm(len(kinds))
		}
		r.strikes[kinds[order[0]](r)]++
		order = order[1:]
		r.progress()
	}
}

// settle lets the processes rest, and waits until all ledgers show the same. It returns the state that they show.
func (r *round) settle(l *logledger.Ledger) *orbit.State {
	for _, one := range r.remotes {
		one.tell("rest")
	}
	for _, one := range r.remotes {
		receive(r.t, one.rested)
	}
	var seen []sight
	for end := time.Now().Add(time.Minute); ; {
		// An entry also settles the posts of dead processes that wait.
		_, err := l.Propose(r.t.Context(), orbit.Proposal{ID: orbit.NewProposalID(), Do: []orbit.Commitment{orbit.Mark{Key: "end", Value: orbit.NewProposalID().String()}}})
		require.NoError(r.t, err)
		seen = []sight{*look(r.t.Context(), l)}
		for _, one := range r.remotes {
			one.tell("look")
			seen = append(seen, receive(r.t, one.sights))
		}
		if alike(seen, func(s sight) any { return s.Revision }) {
			break
		}
		require.True(r.t, time.Now().Before(end), "the ledgers are at different revisions: %+v", seen)
	}
	require.Empty(r.t, seen[0].Fault)
	require.True(r.t, alike(seen, func(s sight) any { return s.Sum + s.Fault }), "the ledgers differ: %+v", seen)
	for _, one := range r.remotes {
		require.NoError(r.t, one.Stop(10*time.Second))
	}
	for _, s := range seen[1:] {
		r.t.Logf("a process that was there at the end: %+v", s.Stats)
	}
	state, err := l.Snapshot(r.t.Context())
	require.NoError(r.t, err)
	require.Equal(r.t, seen[0].Revision, state.Revision())
	return state
}

// alike reports whether a property of all sights is the same.
func alike(list []sight, of func(sight) any) bool {
	return !slices.ContainsFunc(list, func(s sight) bool { return of(s) != of(list[0]) })
}

// reader reads a log while others append to it and remove what checkpoints have.
type reader struct {
	book audit.Book
	log  logledger.Log
	at   logledger.Index
}

// follow reads until ctx ends.
func (r *reader) follow(ctx context.Context) error {
	for ctx.Err() == nil {
		var err error
		if r.at, err = r.book.ReadLog(ctx, r.log, r.at); err != nil && audit.KindOf(err) != audit.Unavailable {
			return err
		}
		select {
		case <-r.log.Changed():
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// answers are the answers to all proposals, as the audit wants them.
func (r *round) answers() *audit.Answers {
	var out audit.Answers
	for _, c := range r.calls {
		switch {
		case c.deed.reads():
		case c.ended == 0:
			out.Add(audit.Answer{ID: c.id, Kind: audit.Unknown})
		default:
			out.Add(audit.Answer{ID: c.id, Kind: c.answer.Kind, Revision: c.answer.Revision})
		}
	}
	return &out
}

// history returns the calls as operations. An unknown outcome is one that the log knows: what is in it took effect at some time
// after the call began, and what is not in it never did. Through another process it must not be asked for: a refusal there says
// nothing about what the first process has posted.
func (r *round) history(book *audit.Book) (out []porcupine.Operation) {
	for _, c := range r.calls {
		op := porcupine.Operation{Input: c.deed, Call: c.began, Output: c.answer, Return: c.ended}
		switch {
		case c.deed.reads() && c.answer.Kind != audit.Committed, c.answer.Kind == audit.Unavailable:
			continue
		case c.ended == 0, c.answer.Kind == audit.Unknown:
			if book.CommittedAt(c.id) == 0 {
				continue
			}
			op.Output, op.Return = answer{Kind: audit.Committed}, math.MaxInt64
		}
		out = append(out, op)
	}
	return out
}

// judge judges all answers by the log, the last state, and a model.
func (r *round) judge(book *audit.Book, state *orbit.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	answers := r.answers()
	require.Zero(r.t, book.Judge(answers), "acknowledged and not in the log: %v", book.Faults)
	require.Zero(r.t, book.Compare(state), "in the log and not in the end: %v", book.Faults)
	require.Zero(r.t, book.Doubled+book.Over+book.Repeated, "%v", book.Faults)
	require.Empty(r.t, book.Faults)
	require.Zero(r.t, answers.Count(audit.Invalid)+answers.Count(audit.Other))
	history := r.history(book)
	began := time.Now()
	require.Equal(r.t, porcupine.Ok, order(r.t, history))
	r.t.Logf("%d calls, %d of them reads: %d committed, %d refused, %d unknown, %d unavailable; %d commits in the log; %d operations put in order in %v",
		len(r.calls), len(r.calls)-answers.Total(), answers.Count(audit.Committed), answers.Count(audit.Conflict)+answers.Count(audit.Infeasible),
		answers.Count(audit.Unknown), answers.Count(audit.Unavailable), book.Commits, len(history), time.Since(began).Round(time.Millisecond))
}

// play plays a round with n strikes. It reports whether the history could be judged: a reader who was held up while the others
// have made two checkpoints does not have it.
func (r *round) play(n int) (judged bool) {
	ctx, stop := context.WithCancel(r.t.Context())
	defer stop()
	direct := r.store.site(r.name, r.store.addresses())
	direct.Timeout, direct.Patience = 10*time.Second, time.Minute // only the processes are to be struck
	l, closes, err := direct.open(ctx)
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, errors.Join(l.Close(), closes())) }()
	_, err = l.Propose(ctx, stage())
	require.NoError(r.t, err)
	log, closesLog, err := direct.openLog(ctx)
	require.NoError(r.t, err)
	defer func() { require.NoError(r.t, errors.Join(log.Close(), closesLog())) }()
	one, read := &reader{log: log}, make(chan error, 1)
	following, end := context.WithCancel(ctx)
	go func() { read <- one.follow(following) }()
	for range clients {
		var wires []*wire
		for _, address := range r.store.addresses() {
			wires = append(wires, newWire(r.t, address))
		}
		r.remotes = append(r.remotes, r.start(wires))
	}
	r.rage(n)
	state := r.settle(l)
	end()
	if err = <-read; err == nil {
		one.at, err = one.book.ReadLog(ctx, log, one.at)
	}
	if errors.Is(err, logledger.ErrTrimmed) {
		return false
	}
	require.NoError(r.t, err)
	r.judge(&one.book, state)
	return true
}

// strikes strikes a store, the processes that use it, and their network.
func strikes(t *testing.T, s mortalStore) {
	began, judged, count, total, want := time.Now(), 0, map[string]int{}, 0, sample.Of(12, 300)
	for n := 0; total < want || judged == 0; n++ {
		r := &round{t: t, store: s, rng: rand.New(rand.NewPCG(uint64(n), 8)), name: fmt.Sprintf("round%d", n), strikes: map[string]int{}}
		if r.play(min(max(want-total, len(kinds)), 30)) {
			judged++
		}
		for kind, n := range r.strikes {
			count[kind], total = count[kind]+n, total+n
		}
	}
	t.Logf("%d strikes in %v, %d histories judged", total, time.Since(began).Round(time.Second), judged)
	for _, kind := range slices.Sorted(maps.Keys(count)) {
		t.Logf("%4d %s", count[kind], kind)
	}
}

// TestStrikesOnEtcd: four processes with a ledger each in one etcd are one linearizable ledger, and nothing is lost or doubled,
// while processes and members are killed and paused, connections are cut, answers lost, and requests delivered late. An ordinary run strikes 12 times,
// at least once in each way, one with -tags stress 300 times.
func TestStrikesOnEtcd(t *testing.T) {
	t.Parallel()
	strikes(t, newEtcdStore(t))
}

// TestStrikesOnPostgres: the same holds for ledgers in one Postgres.
func TestStrikesOnPostgres(t *testing.T) {
	t.Parallel()
	strikes(t, newPostgresStore(t))
}

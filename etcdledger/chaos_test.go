package etcdledger

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
)

// chaos is a plan of what several callers do on several ledgers while requests and watches fail. All random values are
// drawn before anything runs.
type chaos struct {
	plans   []*plan
	callers []chaosCaller
	// When the store is compacted, and when a key below the prefix is written that is no record.
	compacts, writes []time.Duration
	history          int
}

type chaosCaller struct {
	ledger int
	calls  []chaosCall
}

// chaosCall is a proposal, or a batch of them, whose every commitment has a text of its own.
type chaosCall struct {
	proposals []orbit.Proposal
	after     time.Duration
	// The caller leaves after so long; 0: never.
	leaves time.Duration
	// It is sent again so often while its outcome is unknown.
	again int
}

const (
	chaosNodes    = 3
	chaosCapsules = 6
)

func drawChaos(t *rapid.T) *chaos {
	c := &chaos{history: rapid.SampledFrom([]int{0, 0, 8}).Draw(t, "history")}
	durations := rapid.SampledFrom([]time.Duration{0, time.Millisecond, 30 * time.Millisecond, 700 * time.Millisecond, 6 * time.Second})
	faults := func(label string, most int) (out []fault) {
		for range rapid.IntRange(0, most).Draw(t, label) {
			out = append(out, fault{fate(rapid.IntRange(0, int(silent)).Draw(t, label)), durations.Draw(t, "by")})
		}
		return out
	}
	for range rapid.IntRange(2, 3).Draw(t, "ledgers") {
		c.plans = append(c.plans, &plan{txns: faults("txns", 12), reads: faults("reads", 6), events: faults("events", 12), lag: durations.Draw(t, "lag") / 10})
	}
	n := uint64(0)
	for range rapid.IntRange(2, 5).Draw(t, "callers") {
		caller := chaosCaller{ledger: rapid.IntRange(0, len(c.plans)-1).Draw(t, "ledger")}
		for range rapid.IntRange(1, 6).Draw(t, "calls") {
			call := chaosCall{after: durations.Draw(t, "after"), again: rapid.IntRange(0, 3).Draw(t, "again")}
			if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
				call.leaves = durations.Draw(t, "patience")
			}
			for range rapid.SampledFrom([]int{1, 1, 1, 4}).Draw(t, "batch") {
				n++
				call.proposals = append(call.proposals, drawChaosProposal(t, n))
			}
			caller.calls = append(caller.calls, call)
		}
		c.callers = append(c.callers, caller)
	}
	for range rapid.IntRange(0, 2).Draw(t, "compacts") {
		c.compacts = append(c.compacts, durations.Draw(t, "when"))
	}
	for range rapid.IntRange(0, 2).Draw(t, "writes") {
		c.writes = append(c.writes, durations.Draw(t, "when"))
	}
	return c
}

// drawChaosProposal draws a proposal that a text in the log distinguishes from all others.
func drawChaosProposal(t *rapid.T, n uint64) orbit.Proposal {
	p := orbit.Proposal{ID: idOf(n)}
	text := fmt.Sprintf("text-%d", n)
	capsule := orbit.CapsuleID(fmt.Sprintf("c%d", rapid.IntRange(0, chaosCapsules-1).Draw(t, "capsule")))
	node := orbit.NodeID(fmt.Sprintf("n%d", rapid.IntRange(0, chaosNodes-1).Draw(t, "node")))
	mark := orbit.Mark{Key: "shared", Value: text}
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	default:
		p.Do = []orbit.Commitment{orbit.Place{Capsule: capsule, Node: node, Note: text}}
	case 0:
		p.Do = []orbit.Commitment{orbit.Release{Capsule: capsule, Stopped: true}, orbit.Release{Capsule: orbit.CapsuleID(text), Final: true}}
	case 1:
		p.Do = []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{capsule + "-" + orbit.CapsuleID(text)}, Spec: &orbit.Spec{}}, orbit.Place{Capsule: capsule + "-" + orbit.CapsuleID(text), Node: node, Note: text}}
	case 2:
		p.Do = []orbit.Commitment{mark}
	case 4:
		b := orbit.Budget{ID: "b", Group: "g", Expected: rapid.IntRange(0, 3).Draw(t, "expected")}
		p.Do = []orbit.Commitment{orbit.PutBudget{Budget: b}, mark}
	case 5, 6:
		n := orbit.Node{ID: node, Capacity: orbit.Resources{2}, State: orbit.Condition(rapid.IntRange(0, 1).Draw(t, "cordoned"))}
		p.Do = []orbit.Commitment{orbit.PutNode{Node: n}, mark}
	case 7, 8: // a wish, if the node is cordoned
		p.Do = []orbit.Commitment{orbit.Release{Capsule: capsule}, mark}
	case 3:
		p.Do = []orbit.Commitment{orbit.Hold{ID: orbit.HoldID(text), Node: node, Room: orbit.Resources{1}, Ends: time.Unix(1e9, 0)}}
	}
	if rapid.IntRange(0, 3).Draw(t, "nameless") == 0 {
		p.ID = orbit.ProposalID{}
	}
	return p
}

// textIn returns the text by which the log shows a proposal.
func textIn(do []orbit.Commitment) string {
	for _, c := range do {
		switch c := c.(type) {
		case orbit.Place:
			return c.Note
		case orbit.Mark:
			return c.Value
		case orbit.Release:
			if c.Final {
				return string(c.Capsule)
			}
		case orbit.Hold:
			return string(c.ID)
		}
	}
	return ""
}

// answer is the last answer of a caller's calls for one proposal.
type answer struct {
	text string
	orbit.Outcome
	took time.Duration
}

// run plays the plan and returns all answers.
func (c *chaos) run(t *rapid.T, ledgers []*Ledger, s *store) (answers []answer) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, caller := range c.callers {
		wg.Go(func() {
			for _, call := range caller.calls {
				time.Sleep(call.after)
				got := call.send(ledgers[caller.ledger])
				mu.Lock()
				answers = append(answers, got...)
				mu.Unlock()
			}
		})
	}
	for _, at := range c.compacts {
		wg.Go(func() { time.Sleep(at); s.compact() })
	}
	for _, at := range c.writes {
		wg.Go(func() { time.Sleep(at); s.write("orbit/foreign", "x") })
	}
	wg.Wait()
	return answers
}

// send sends the call again until its outcome is known or the caller gives up. It overwrites the passed proposal at
// once, which must have no effect.
func (c *chaosCall) send(l *Ledger) []answer {
	ctx, cancel := context.WithCancel(bg)
	if c.leaves > 0 {
		ctx, cancel = context.WithTimeout(bg, c.leaves)
	}
	defer cancel()
	out := make([]answer, len(c.proposals))
	for i := range out {
		out[i] = answer{text: textIn(c.proposals[i].Do), Outcome: orbit.Outcome{Err: orbit.ErrUnknown}}
	}
	for try := 0; try <= c.again; try++ {
		var batch []orbit.Proposal
		var which []int
		for i, p := range c.proposals {
			if errors.Is(out[i].Err, orbit.ErrUnknown) && (try == 0 || !p.ID.IsZero()) {
				p.Do = append([]orbit.Commitment{}, p.Do...)
				batch, which = append(batch, p), append(which, i)
			}
		}
		if len(batch) == 0 {
			break
		}
		began := time.Now()
		got := l.ProposeBatch(ctx, batch)
		for i, w := range which {
			sent := errors.Is(out[w].Err, orbit.ErrUnknown) && try > 0
			out[w].took = max(out[w].took, time.Since(began))
			if sent && errors.Is(got[i].Err, orbit.ErrUnavailable) {
				continue // the outcome of the first time is still unknown
			}
			out[w].Outcome = got[i]
			clear(batch[i].Do)
		}
	}
	return out
}

// TestChaos: whatever requests, answers and watches do, and whichever process leaves, each acknowledged commit is in
// the log once, at its revision. A proposal with an unknown outcome is in the log at most once, and one that was
// refused or not sent is not in it. The log, replayed from nothing, agrees with every mirror and with the records.
// Every call ends.
func TestChaos(t *testing.T) {
	t.Parallel()
	for count := range scale.Reach(t, "committed", "unknown at all", "conflict", "unavailable", "lost answers", "retries", "reloads") {
		rapid.Check(t, func(t *rapid.T) {
			c := drawChaos(t)
			rapid.SyncTest(t, func(t *rapid.T) { c.check(t, count) })
		})
		count["unknown at all"] = count["unknown"] + count["unknown, committed"] // few plans reach either
	}
}

func (c *chaos) check(t *rapid.T, count map[string]int) {
	s := newStore()
	o := Options{Bounds: orbit.Limits{History: c.history}}
	first, err := Open(bg, s.client(&plan{}), o)
	require.NoError(t, err)
	defer first.Close()
	c.populate(t, first)
	var ledgers []*Ledger
	var plans []*plan
	for _, p := range c.plans {
		calm := &plan{}
		l, err := Open(bg, s.client(calm), o)
		require.NoError(t, err)
		defer l.Close()
		calm.begin(p)
		plans = append(plans, calm)
		ledgers = append(ledgers, l)
	}
	answers := c.run(t, ledgers, s)
	for _, p := range plans {
		p.heal()
	}
	time.Sleep(time.Minute) // delayed requests arrive by then, and callers that wait for lost ones give up
	log := s.history(t, first.keys)
	for _, a := range answers {
		count[checkAnswer(t, a, log)]++
	}
	replayed := replay(t, first.Limits(), log)
	want := textOf(replayed, same)
	require.NoError(t, replayed.Verify())
	for i, l := range append(ledgers, first, openFresh(t, s)) {
		got, err := l.Snapshot(bg)
		require.NoError(t, err)
		require.Empty(t, differ(textOf(got, same), want), "mirror %d is not what the log says", i)
		stats := l.Stats()
		count["lost answers"] += int(stats.LostAnswers)
		count["retries"] += int(stats.Retries)
		count["reloads"] += int(stats.Reloads)
		require.NoError(t, l.Close())
	}
	synctest.Wait()
	require.Zero(t, s.busy(), "requests or watches are left")
}

// populate makes the nodes and capsules that the callers compete for.
func (c *chaos) populate(t *rapid.T, l *Ledger) {
	var do []orbit.Commitment
	for i := range chaosNodes {
		do = append(do, orbit.PutNode{Node: orbit.Node{ID: orbit.NodeID(fmt.Sprintf("n%d", i)), Capacity: orbit.Resources{2}}})
	}
	for i := range chaosCapsules {
		spec := &orbit.Spec{Envelope: orbit.Envelope{Reservation: orbit.Resources{1}}, Group: "g"}
		do = append(do, orbit.Submit{IDs: []orbit.CapsuleID{orbit.CapsuleID(fmt.Sprintf("c%d", i))}, Spec: spec})
	}
	_, err := l.Propose(bg, orbit.Proposal{Do: do})
	require.NoError(t, err)
	for _, caller := range c.callers {
		for _, call := range caller.calls {
			for _, p := range call.proposals {
				if end, ok := p.Do[len(p.Do)-1].(orbit.Release); ok {
					_, err := l.Propose(bg, orbit.Proposal{Do: []orbit.Commitment{orbit.Submit{IDs: []orbit.CapsuleID{end.Capsule}, Spec: &orbit.Spec{}}}})
					require.NoError(t, err)
				}
			}
		}
	}
}

// checkAnswer compares an answer with the log, and returns its kind.
func checkAnswer(t *rapid.T, a answer, log []orbit.Change) string {
	var at []orbit.Revision
	for _, c := range log {
		if textIn([]orbit.Commitment{c.Do}) == a.text {
			at = append(at, c.Revision)
		}
	}
	require.LessOrEqual(t, len(at), 1, "%s was committed at %d: more than once", a.text, at)
	require.Less(t, a.took, time.Minute, "%s took too long: %v", a.text, a.Err)
	switch {
	case a.Err == nil:
		require.Equal(t, []orbit.Revision{a.Revision}, at, "%s was acknowledged", a.text)
		return "committed"
	case errors.Is(a.Err, orbit.ErrUnknown):
		if len(at) > 0 {
			return "unknown, committed"
		}
		return "unknown"
	}
	require.Empty(t, at, "%s was committed; the answer was %v", a.text, a.Err)
	for _, kind := range []error{orbit.ErrConflict, orbit.ErrInfeasible, orbit.ErrUnavailable} {
		if errors.Is(a.Err, kind) && !errors.Is(a.Err, orbit.ErrInvalid) {
			if errors.Is(kind, orbit.ErrUnavailable) {
				return "unavailable"
			}
			return kind.Error()
		}
	}
	t.Fatalf("%s: %v is no answer", a.text, a.Err)
	return ""
}

// replay makes a state from the log alone.
func replay(t require.TestingT, limits orbit.Limits, log []orbit.Change) *orbit.State {
	empty, err := (&orbit.MemoryLedger{Bounds: limits}).Snapshot(bg)
	require.NoError(t, err)
	s, err := empty.Apply(log)
	require.NoError(t, err, "the log breaks the rules")
	return s
}

// openFresh opens a ledger that has nothing but the records.
func openFresh(t require.TestingT, s *store) *Ledger {
	l, err := Open(bg, s.client(&plan{}), Options{})
	require.NoError(t, err)
	return l
}

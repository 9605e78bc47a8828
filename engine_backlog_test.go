package orbit

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rowsOf describes the rows of a backlog: kind, engine, capsules and reason.
func rowsOf(rows []BacklogRow) (out []string) {
	for _, r := range rows {
		engine := "nobody"
		if r.Engine != nil {
			engine = r.Engine.Name
		}
		out = append(out, fmt.Sprintf("%s %s %v: %v", r.Kind, engine, idsOf(r.Capsules), r.Why))
	}
	return out
}

// scripted is a navigator that decides by the module of a capsule: "fit" is placed on the best node, "quiet" is left out
// without a word, and any other is left out for that reason.
type scripted struct {
	draft Draft
	by    func(c *Capsule) string // nil: by the module
}

func (*scripted) Claims(module string, _ AppClass) bool { return module != "unclaimed" }

func (s *scripted) Plan(_ context.Context, view *View, pending []*Capsule) (plan Plan, err error) {
	s.draft.Sync(view)
	for _, c := range pending {
		word := c.Spec.Module
		if s.by != nil {
			word = s.by(c)
		}
		switch word {
		case "fit":
			if err := s.draft.PlaceBest(&scan{}, c); err != nil {
				plan.Unplaced = append(plan.Unplaced, Unplaced{c, err})
			} else {
				plan.Proposals = append(plan.Proposals, s.draft.Propose())
			}
		case "quiet":
		default:
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, errors.New(word)})
		}
	}
	return plan, nil
}

// moduleOf returns a spec that asks for CPU.
func moduleOf(module string, priority int32, cpu int64) *Spec {
	return &Spec{Module: module, Priority: priority, Envelope: wants(cpu).Envelope}
}

// Everything that waits is in one row, with the engine that owns it and the reason of its wait: also what no plan has
// looked at, such as work behind a parked class, and work that no engine owns.
func TestBacklogHasAllThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, start := &MemoryLedger{}, time.Now()
		e := &Engine{Name: "e", Ledger: l, Navigator: &scripted{}, MaxPlan: 6, ParkFor: time.Hour}
		idle := &Engine{Name: "idle", Ledger: l, Navigator: &greedy{claims: func(string, AppClass) bool { return false }}}
		backlog := func() []BacklogRow { return Backlog(snapshotOf(t, l), e, nil, idle) }
		require.Empty(t, backlog())
		require.Empty(t, Backlog(nil, e))

		member := &Spec{Class: GangClass, Module: "no rack"}
		commit(t, l, PutNode{machine("n", 4)}, Submit{IDs: names("big", 3), Spec: moduleOf("fit", 2, 10)},
			Submit{IDs: []CapsuleID{"late-1", "late-0"}, Spec: moduleOf("too late", 1, 1)}, Submit{IDs: []CapsuleID{"quiet"}, Spec: moduleOf("quiet", 1, 1)},
			Submit{Gang: &Gang{ID: "g", Roles: []Role{{Spec: member, Members: []CapsuleID{"g-0", "g-1"}, Min: 2}}}},
			Submit{IDs: []CapsuleID{"other"}, Spec: wants(1), Owner: "elsewhere"}, Submit{IDs: []CapsuleID{"mine"}, Spec: moduleOf("too late", 0, 1), Owner: "idle"},
			Submit{IDs: []CapsuleID{"lost-0", "lost-1"}, Spec: moduleOf("unclaimed", -1, 1)})
		unplanned, away := errUnplanned.Error(), errNotRunning.Error()
		notOwned := []string{
			`unowned nobody [other]: it is assigned to "elsewhere", which is none of the engines`,
			"unplanned idle [mine]: " + away,
			`unowned nobody [lost-0 lost-1]: no engine claims module "unclaimed", class LatencySensitive; assign it to an engine, or let a navigator claim it`,
		}
		require.Equal(t, append([]string{
			"unplanned e [big0000 big0001 big0002]: " + away,
			"unplanned e [late-1 late-0]: " + away,
			"unplanned e [quiet]: " + away,
			"unplanned e [g-0 g-1]: " + away,
		}, notOwned...), rowsOf(backlog()))

		// The pass takes six capsules: all but the gang. Then it takes the gang's first member, and more work comes.
		require.Equal(t, 1, e.Pass(t.Context()).Parked)
		judged := time.Now()
		time.Sleep(time.Minute)
		e.MaxPlan = 4
		_ = e.Pass(t.Context())
		commit(t, l, Submit{IDs: []CapsuleID{"big-late"}, Spec: moduleOf("fit", 2, 10), At: instantOf(start)}, Submit{IDs: []CapsuleID{"new"}, Spec: moduleOf("fit", 0, 1)})
		rows := backlog()
		require.Equal(t, append(append([]string{
			"parked e [big0000 big0001 big0002 big-late]: 0 of 1 nodes fit: 1 lacks cpu; no node is that large: the largest has 0.004 cores",
			"left_out e [late-1 late-0]: too late",
			"left_out e [quiet]: " + errSilent.Error(),
			"left_out e [g-0 g-1]: no rack",
		}, notOwned[:2]...), "unplanned e [new]: "+unplanned, notOwned[2]), rowsOf(rows))
		require.True(t, judged.Equal(rows[0].Began))
		require.True(t, judged.Add(time.Hour).Equal(rows[0].Again))
		require.Equal(t, instantOf(start), rows[0].Since)
		require.True(t, judged.Equal(rows[1].Began))
		require.Zero(t, rows[1].Again)
		require.Zero(t, rows[1].Since)

		// A change may help the parked class, so it is planned next.
		commit(t, l, PutNode{machine("m", 10)})
		e.MaxPlan = 1
		require.Equal(t, 1, e.Pass(t.Context()).Committed)
		require.Equal(t, "unplanned e [big0001 big0002 big-late]: "+unplanned, rowsOf(backlog())[0])
	})
}

// An engine runs while its Run is at work, or once Pass was called outside of it. What was found out before it stopped is no
// reason any more: another engine may have taken over, and knows.
func TestRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		commit(t, l, PutNode{machine("n", 4)}, Submit{IDs: []CapsuleID{"big"}, Spec: moduleOf("fit", 0, 10)}, Submit{IDs: []CapsuleID{"late"}, Spec: moduleOf("late", 0, 1)})
		e := &Engine{Name: "e", Ledger: l, Navigator: &scripted{}}
		p := &Population{Engines: []*Engine{e}}
		says := func(running bool) {
			t.Helper()
			require.Equal(t, running, e.Running())
			rows := rowsOf(Backlog(snapshotOf(t, l), e))
			if running {
				require.Equal(t, []string{"parked e [big]: 0 of 1 nodes fit: 1 lacks cpu; no node is that large: the largest has 0.004 cores", "left_out e [late]: late"}, rows)
				return
			}
			require.Equal(t, []string{"unplanned e [big]: " + errNotRunning.Error(), "unplanned e [late]: " + errNotRunning.Error()}, rows)
		}
		says(false)
		for range 2 {
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error)
			go func() { done <- p.Run(ctx) }()
			time.Sleep(time.Minute)
			says(true)
			require.Error(t, e.Run(ctx), "it runs already")
			says(true)
			stop()
			require.NoError(t, <-done)
			says(false)
		}
		_ = e.Pass(t.Context())
		says(true)
		ended, end := context.WithCancel(t.Context())
		end()
		require.NoError(t, p.Run(ended), "a pass by hand keeps nobody from Run")
		says(false)
		_ = e.Pass(t.Context())
		broken := &Engine{Name: "broken"}
		require.Error(t, broken.Run(t.Context()))
		require.NotEmpty(t, broken.Pass(t.Context()).Errors)
		require.False(t, broken.Running(), "it cannot run")
	})
}

// What a pass cannot plan says so: the ledger is not reachable, the navigator fails or overruns, outcomes are unknown,
// proposals are refused or withheld.
func TestBacklogSaysWhatKeepsAnEngineFromPlanning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ledger, boom := &MemoryLedger{}, errors.New("boom")
		commit(t, ledger, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"a"}, Spec: wants(1)})
		l := &bent{Ledger: ledger}
		plan, release := func() (Plan, error) { return Plan{}, boom }, make(chan struct{})
		e := &Engine{Name: "e", Ledger: l, Navigator: planFunc(func(context.Context, *View, []*Capsule) (Plan, error) { return plan() })}
		why := func() string {
			_ = e.Pass(t.Context())
			rows := Backlog(snapshotOf(t, ledger), e)
			require.Len(t, rows, 1)
			text, _, _ := strings.Cut(rows[0].Why.Error(), "\n")
			return fmt.Sprint(rows[0].Kind, ": ", text)
		}
		require.Equal(t, `unplanned: orbit: engine "e": plan: boom`, why())
		plan = func() (Plan, error) { panic("oh") }
		require.Equal(t, `unplanned: orbit: engine "e": plan: navigator failed: it panicked: oh`, why())
		plan = func() (Plan, error) { <-release; return Plan{}, nil }
		require.Contains(t, why(), "the call has not returned after 10s")
		require.Contains(t, why(), "its last Plan still runs")
		close(release)
		synctest.Wait()

		l.snapshot = func(context.Context) (*State, error) { return nil, boom }
		commit(t, ledger, Mark{Key: "k", Value: "v"})
		require.Equal(t, `unplanned: orbit: engine "e": view: boom`, why())
		l.snapshot = nil

		outcome := error(&Rejection{Kind: ErrConflict, Reason: "it is gone"})
		l.propose = func(context.Context, Proposal) (Revision, error) { return 0, outcome }
		plan = func() (Plan, error) {
			return Plan{Proposals: []Proposal{{Do: []Commitment{Place{Capsule: "a", Node: "n"}}}}}, nil
		}
		require.Equal(t, "refused: "+outcome.Error(), why())
		outcome = ErrUnknown
		require.Equal(t, "refused: "+outcome.Error(), why())
		plan = func() (Plan, error) { return Plan{}, nil }
		require.Equal(t, "refused: "+outcome.Error(), why(), "it is sent again, and its outcome is still unknown")
		commit(t, ledger, Submit{IDs: []CapsuleID{"b"}, Spec: wants(1)})
		_ = e.Pass(t.Context())
		require.Equal(t, []string{"refused e [a]: " + outcome.Error(), "unplanned e [b]: " + errResend.Error()}, rowsOf(Backlog(snapshotOf(t, ledger), e)))
		l.propose = nil
		_ = e.Pass(t.Context())
		require.Equal(t, []string{"left_out e [b]: " + errSilent.Error()}, rowsOf(Backlog(snapshotOf(t, ledger), e)))
		commit(t, ledger, Evict{Capsule: "a", From: "n", Since: snapshotOf(t, ledger).Capsule("a").PlacedAt, For: "c"},
			Submit{IDs: []CapsuleID{"c"}, Spec: &Spec{Priority: 9, Envelope: wants(10).Envelope}}, Place{Capsule: "c", Node: "n"})
		require.Equal(t, []string{"unplanned e [a]: " + errUnplanned.Error(), "left_out e [b]: " + errSilent.Error()}, rowsOf(Backlog(snapshotOf(t, ledger), e)),
			"what was said of a before it was placed says nothing any more")

		// An engine with a fault, and one that has never run.
		require.Equal(t, []string{`unowned nobody [a b]: no engine claims module "", class LatencySensitive; assign it to an engine, or let a navigator claim it`},
			rowsOf(Backlog(snapshotOf(t, ledger), &Engine{Name: "x", Ledger: l})))
	})
}

// A proposal that is withheld because work of higher priority has lost its bet is a reason of its own.
func TestBacklogNamesWhatIsWithheld(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: []CapsuleID{"high"}, Spec: moduleOf("fit", 2, 6)}, Submit{IDs: []CapsuleID{"low"}, Spec: moduleOf("fit", 1, 4)})
	gone := &Rejection{Kind: ErrConflict, Reason: "it is gone"}
	e := &Engine{Name: "e", Navigator: &scripted{}, Ledger: &bent{Ledger: l, propose: func(context.Context, Proposal) (Revision, error) { return 0, gone }}}
	_ = e.Pass(t.Context())
	require.Equal(t, []string{"refused e [high]: " + gone.Error(), "withheld e [low]: " + errWithheld.Error()}, rowsOf(Backlog(snapshotOf(t, l), e)))
}

// The backlog against a dumb model, which writes down the last word on each capsule: whatever navigators and the ledger
// answer, each pending capsule is in one row, and its reason is the last word unless its class is parked.
func TestBacklogAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ledger := &MemoryLedger{}
		l, lose := &bent{Ledger: ledger}, false
		l.propose = func(ctx context.Context, p Proposal) (Revision, error) {
			if place, ok := p.Do[0].(Place); ok && lose {
				return 0, &Rejection{Kind: ErrConflict, Reason: "lost " + string(place.Capsule)}
			}
			return ledger.Propose(ctx, p)
		}
		commit(t, ledger, PutNode{machine("a", 3)}, PutNode{machine("b", 5)})
		last := map[CapsuleID]string{} // kind and reason
		words := map[CapsuleID]string{}
		nav := &scripted{by: func(c *Capsule) string { return words[c.ID] }}
		e := &Engine{Name: "e", Ledger: l, Navigator: nav, MaxPlan: 3, OnRound: func(Round) {}}
		serial := 0
		aCapsule := func(t *rapid.T, pending bool) *Capsule {
			var all []*Capsule
			for c := range snapshotOf(t, ledger).Capsules() {
				if c.Pending() == pending && !c.Released() {
					all = append(all, c)
				}
			}
			if len(all) == 0 {
				t.Skip("there is none")
			}
			return rapid.SampledFrom(all).Draw(t, "capsule")
		}
		t.Repeat(map[string]func(*rapid.T){
			"submit": func(t *rapid.T) {
				serial++
				spec := &Spec{Priority: rapid.Int32Range(0, 1).Draw(t, "priority"), Envelope: wants(rapid.Int64Range(1, 6).Draw(t, "cpu")).Envelope}
				ids := names(fmt.Sprint("c", serial, "-"), rapid.IntRange(1, 3).Draw(t, "count"))
				do := Submit{IDs: ids, Spec: spec}
				if spec.Priority == 0 && rapid.IntRange(0, 3).Draw(t, "gang") == 0 {
					spec.Class = GangClass
					do = Submit{Gang: &Gang{ID: GangID(fmt.Sprint("g", serial)), Roles: []Role{{Spec: spec, Members: ids}}}}
				}
				commit(t, ledger, do)
			},
			"end": func(t *rapid.T) {
				c := aCapsule(t, rapid.Bool().Draw(t, "pending"))
				commit(t, ledger, Release{Capsule: c.ID, From: c.Node, Final: true})
				delete(last, c.ID)
			},
			"stop": func(t *rapid.T) {
				c := aCapsule(t, false)
				commit(t, ledger, Release{Capsule: c.ID, From: c.Node, Stopped: true})
				delete(last, c.ID)
			},
			"join": func(t *rapid.T) {
				commit(t, ledger, PutNode{machine(NodeID(fmt.Sprint("n", serial)), rapid.Int64Range(1, 6).Draw(t, "cpu"))})
			},
			"pass": func(t *rapid.T) {
				clear(words)
				for c := range snapshotOf(t, ledger).Capsules() {
					words[c.ID] = rapid.SampledFrom([]string{"fit", "fit", "fit", "quiet", "late", "early"}).Draw(t, "word")
					if c.Gang() != "" && words[c.ID] == "fit" {
						words[c.ID] = "late"
					}
				}
				lose = rapid.Bool().Draw(t, "lose")
				round := e.Pass(context.Background())
				require.Empty(t, round.Errors)
				parked := map[*Spec]bool{}
				for _, u := range round.Unplaced {
					var nofit *NoFit
					parked[u.Capsule.Spec] = parked[u.Capsule.Spec] || errors.As(u.Why, &nofit)
				}
				for _, u := range round.Unplaced {
					switch {
					case parked[u.Capsule.Spec] && !errors.Is(u.Why, errWithheld):
						delete(last, u.Capsule.ID)
					case errors.Is(u.Why, errWithheld):
						last[u.Capsule.ID] = "withheld " + u.Why.Error()
					default:
						last[u.Capsule.ID] = "left_out " + u.Why.Error()
					}
				}
				for _, s := range round.Settled {
					if place, ok := s.Proposal.Do[0].(Place); ok && s.Outcome.Err != nil {
						last[place.Capsule] = "refused " + s.Outcome.Err.Error()
					} else if ok {
						delete(last, place.Capsule)
					}
				}
				for _, c := range e.view.queue.out { // what the navigator was given
					if c != nil && words[c.ID] == "quiet" && parked[c.Spec] {
						delete(last, c.ID)
					} else if c != nil && words[c.ID] == "quiet" {
						last[c.ID] = "left_out " + errSilent.Error()
					}
				}
			},
			"": func(t *rapid.T) {
				state, seen := snapshotOf(t, ledger), map[CapsuleID]bool{}
				for _, row := range Backlog(state, e) {
					for _, c := range row.Capsules {
						require.False(t, seen[c.ID], "in two rows")
						seen[c.ID] = true
						require.Same(t, state.Capsule(c.ID), c)
						want, known := last[c.ID]
						if spot := e.view.queue.parked.spots[c.Spec]; spot != nil {
							require.Equal(t, WaitParked, row.Kind)
							require.Same(t, spot.why, row.Why)
						} else if known {
							require.Equal(t, want, fmt.Sprint(row.Kind, " ", row.Why))
						} else if c.Gang() == "" {
							require.Equal(t, WaitUnplanned, row.Kind)
						}
					}
				}
				require.Len(t, seen, state.PendingCount())
			},
		})
	})
}

// Reasons are read beside running engines, while they plan and while a Plan hangs.
func TestBacklogBesideRunningEngines(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 8)})
	p := &Population{OnError: func(error) {}}
	for i := range 3 {
		module := fmt.Sprint("m", i)
		p.Engines = append(p.Engines, &Engine{Name: module, Ledger: l, MaxPlan: 5, Navigator: &greedy{claims: func(m string, _ AppClass) bool { return m == module }}})
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { require.NoError(t, p.Run(ctx)) })
	for reader := range 2 {
		running.Go(func() {
			for ctx.Err() == nil {
				state := snapshotOf(t, l)
				n := 0
				for _, row := range Backlog(state, p.Engines...) {
					n += len(row.Capsules)
					if reader == 0 {
						_ = row.Why.Error()
					}
				}
				if n != state.PendingCount() {
					t.Errorf("%d of %d capsules have a row", n, state.PendingCount())
				}
			}
		})
	}
	for i := range 300 {
		id := CapsuleID(fmt.Sprint("c", i))
		commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: moduleOf(fmt.Sprint("m", i%4), int32(i%2), int64(1+i%11))})
		if c := snapshotOf(t, l).Capsule(CapsuleID(fmt.Sprint("c", i/2))); c.Placed() {
			commit(t, l, Release{Capsule: c.ID, From: c.Node, Final: true})
		}
	}
	stop()
	running.Wait()
}

// A NoFit of a plan is about the plan while its pass is handled. One that is first read later is about the newest view,
// and so it keeps no older state in memory.
func TestAnswersThatAreReadLateAreAboutTheNewestView(t *testing.T) {
	l := &MemoryLedger{Bounds: Limits{History: 1}}
	commit(t, l, PutNode{machine("a", 2)}, PutNode{machine("b", 5)},
		Submit{IDs: []CapsuleID{"x", "y"}, Spec: wants(4)}, Submit{IDs: []CapsuleID{"early", "late"}, Spec: wants(10)})
	e := &Engine{Name: "e", Ledger: l, Navigator: &greedy{}}
	unplaced := e.Pass(t.Context()).Unplaced
	require.Len(t, unplaced, 3)
	require.EqualError(t, unplaced[0].Why, "0 of 2 nodes fit: 2 lack cpu", "x is on b")
	unread := unplaced[1].Why
	planned := weak.Make(e.view.state)
	clear(unplaced)

	for i := range 100 { // the nodes that the plan saw are written anew
		commit(t, l, PutNode{machine("a", 3)}, PutNode{machine(NodeID(fmt.Sprint("n", i)), 1)})
	}
	require.Zero(t, e.Pass(t.Context()).Committed)
	runtime.GC()
	require.Nil(t, planned.Value(), "the state on which was planned is kept")
	require.ErrorContains(t, unread, "0 of 102 nodes fit: 102 lack cpu")
	commit(t, l, PutNode{machine("c", 10)})
	require.ErrorContains(t, unread, "0 of 102 nodes fit", "it has been read")
	rows := Backlog(snapshotOf(t, l), e)
	require.Equal(t, WaitParked, rows[0].Kind)
	require.ErrorContains(t, rows[0].Why, "0 of 102 nodes fit: 102 lack cpu")
}

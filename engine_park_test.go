package orbit

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// parkHuge submits classes of two capsules each that are larger than every node.
func parkHuge(t testing.TB, l Ledger, classes int) {
	for i := range classes {
		commit(t, l, Submit{IDs: names(fmt.Sprintf("huge%05d-", i), 2), Spec: wants(int64(1000 + i))})
	}
}

// However many classes have been parked long enough, what fits is planned in the next pass, and what is ready takes most of
// each pass; and each class is tried again soon, with one capsule.
func TestRetriesDoNotHoldUpWork(t *testing.T) {
	for _, most := range []int{1, 2, 100} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, nav, classes := &MemoryLedger{}, &greedy{}, 200
				commit(t, l, PutNode{machine("n", 999)})
				parkHuge(t, l, classes)
				e := &Engine{Ledger: l, Navigator: nav, MaxPlan: most}
				for e.Pass(t.Context()).Pending > 0 {
				}
				time.Sleep(time.Minute)
				nav.asked = nil
				tried := map[string]int{}
				for i := 0; len(tried) < classes; i++ {
					require.Less(t, i, 2*classes+4)
					id := CapsuleID(fmt.Sprint("small", i))
					commit(t, l, Submit{IDs: []CapsuleID{id}, Spec: wants(1)})
					e.Pass(t.Context())
					if most == 1 && where(t, l, id) == "" {
						e.Pass(t.Context())
					}
					require.Equal(t, NodeID("n"), where(t, l, id))
					for _, batch := range nav.asked {
						retries := 0
						for _, id := range batch {
							if class, _, ok := strings.Cut(string(id), "-"); ok {
								retries++
								tried[class]++
							}
						}
						require.LessOrEqual(t, retries, max(1, most/8))
					}
					nav.asked = nil
				}
				for class, times := range tried {
					require.Equal(t, 1, times, class)
				}
			})
		})
	}
}

// Once a capsule of a class that has been parked long enough is placed, the rest of the class is back.
func TestRetryThatFitsBringsItsClassBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav, hot := &MemoryLedger{}, &greedy{}, true
		nav.placement.Filter = func(*NodeState, *Report, *Spec) string {
			if hot {
				return "are hot"
			}
			return ""
		}
		ids := names("c", 5)
		commit(t, l, PutNode{machine("n", 10)}, Submit{IDs: ids, Spec: wants(1)})
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		r.until(29 * time.Second)
		hot = false
		r.until(31 * time.Second)
		require.Equal(t, [][]CapsuleID{ids, ids[:1], ids[1:]}, nav.asked)
		require.Equal(t, []time.Duration{0, 30 * time.Second, 30 * time.Second}, nav.at)
		require.Zero(t, snapshotOf(t, l).PendingCount())
	})
}

// What was diagnosed to lack company is not looked at when some node offers more; what is bound to the domains of its company
// is, when a node there does.
func TestNodeElsewhereDoesNotEndWaitingForCompany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav := &MemoryLedger{}, &greedy{}
		member, other := wants(10), wants(3)
		member.Group = "g"
		absent := besides()
		absent.Near.Group = "h"
		commit(t, l, PutNode{racked("a", "1")}, PutNode{racked("b", "1")}, PutNode{racked("c", "2")},
			Submit{IDs: names("other", 2), Spec: other, Owner: "them"}, Place{Capsule: "other0000", Node: "b"}, Place{Capsule: "other0001", Node: "c"},
			Submit{IDs: []CapsuleID{"m"}, Spec: member, Owner: "them"}, Place{Capsule: "m", Node: "a"},
			Submit{IDs: []CapsuleID{"full"}, Spec: wants(7), Owner: "them"}, Place{Capsule: "full", Node: "b"},
			Submit{IDs: []CapsuleID{"near"}, Spec: besides()}, Submit{IDs: []CapsuleID{"alone"}, Spec: absent})
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		r.until(time.Second)
		commit(t, l, Release{Capsule: "other0001", Final: true})
		r.until(2 * time.Second)
		commit(t, l, PutNode{racked("d", "3")})
		r.until(3 * time.Second)
		require.Len(t, nav.at, 1)
		commit(t, l, Release{Capsule: "other0000", Final: true})
		r.until(4 * time.Second)
		require.Equal(t, [][]CapsuleID{{"near", "alone"}, {"near"}}, nav.asked)
		require.Equal(t, NodeID("b"), where(t, l, "near"))
	})
}

// What waits for company is planned again when a member is placed that has the group among others.
func TestCompanyOfFurtherGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, nav := &MemoryLedger{}, &greedy{}
		member, absent := wants(1), besides()
		member.Group, member.Groups, absent.Near.Group = "g", []string{"h"}, "h"
		commit(t, l, PutNode{racked("a", "1")}, PutNode{racked("b", "2")}, Submit{IDs: []CapsuleID{"m"}, Spec: member, Owner: "them"}, Submit{IDs: []CapsuleID{"near"}, Spec: absent})
		r := newRig(t, l, &Engine{Navigator: nav})
		r.run()
		r.until(time.Second)
		require.Empty(t, where(t, l, "near"))
		commit(t, l, Place{Capsule: "m", Node: "b"})
		r.until(2 * time.Second)
		require.Equal(t, NodeID("b"), where(t, l, "near"))
	})
}

// parkedView returns an engine that has passed once, and has parked all the classes.
func parkedView(t testing.TB, l *MemoryLedger, tel Telemetry, nodes, classes int) *Engine {
	for i := range nodes {
		commit(t, l, PutNode{machine(NodeID(fmt.Sprintf("node-%06d", i)), 500+int64(i%7))})
	}
	parkHuge(t, l, classes)
	nav := planFunc(func(_ context.Context, _ *View, pending []*Capsule) (plan Plan, _ error) {
		for _, c := range pending {
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, &NoFit{}})
		}
		return plan, nil
	})
	e := &Engine{Ledger: l, Telemetry: tel, Navigator: nav, MaxPlan: 1 << 20, ParkFor: time.Hour}
	require.Equal(t, classes, e.Pass(t.Context()).Parked)
	return e
}

// What a change of a node looks at does not grow with the number of classes that are parked and that it cannot help.
func TestChangesLookAtFewParkedClasses(t *testing.T) {
	var looked []int
	for _, classes := range []int{1_000, 16_000} {
		l, tel := &MemoryLedger{}, &board{}
		e := parkedView(t, l, tel, 10, classes)
		p := &e.view.queue.parked
		before := p.looked
		for i := range 10 {
			tel.say(Report{Node: NodeID(fmt.Sprintf("node-%06d", i)), CPUPercent: 1}, time.Now())
		}
		require.Zero(t, e.Pass(t.Context()).Pending)
		looked = append(looked, p.looked-before)
	}
	t.Logf("ten reports look at %d of 1,000 parked classes and at %d of 16,000", looked[0], looked[1])
	require.Less(t, looked[1], 2*looked[0]+100)
}

// Classes that plans leave out for reasons of their own, such as those of gangs, are remembered as long as they have
// work. One that waits from the start stays, so that room for it wakes the engine, however many come and go meanwhile.
func TestWaitingClassesWithoutWorkAreForgotten(t *testing.T) {
	l := &MemoryLedger{}
	commit(t, l, PutNode{machine("n", 5)}, submitOf(cpuSpec(7), "waits"))
	nav := planFunc(func(_ context.Context, _ *View, pending []*Capsule) (plan Plan, _ error) {
		for _, c := range pending {
			plan.Unplaced = append(plan.Unplaced, Unplaced{c, errors.New("its gang is not complete")})
		}
		return plan, nil
	})
	for name, most := range map[string]int{"all work is in one plan": 100, "some work is held back": 1} {
		e := &Engine{Ledger: l, Navigator: nav, MaxPlan: most}
		for i := range 5 * compactFrom {
			spec := cpuSpec(8)
			spec.Module = fmt.Sprint("job", i)
			id := CapsuleID(fmt.Sprint(name, i))
			commit(t, l, submitOf(spec, id))
			for range 3 {
				e.Pass(t.Context())
				require.NotNil(t, e.view.queue.parked.waiting[snapshotOf(t, l).Capsule("waits").Spec], name)
			}
			commit(t, l, Release{Capsule: id, Final: true})
		}
		q := &e.view.queue
		require.Less(t, len(q.parked.waiting), compactFrom+10, name)
		q.turn(len(q.held), snapshotOf(t, l), false) // all work is queued
		q.dropIdle()
		require.Len(t, q.parked.waiting, 1, name)
		require.NotNil(t, q.parked.waiting[snapshotOf(t, l).Capsule("waits").Spec], name)
	}
}

// BenchmarkReports measures a pass after a thousand nodes have reported, against the number of parked classes.
func BenchmarkReports(b *testing.B) {
	for _, classes := range []int{0, 1_000, 10_000, 100_000} {
		b.Run(fmt.Sprintf("parked=%d", classes), func(b *testing.B) {
			l, tel := &MemoryLedger{}, &board{}
			e := parkedView(b, l, tel, 1_000, classes)
			for b.Loop() {
				b.StopTimer()
				for i := range 1_000 {
					tel.say(Report{Node: NodeID(fmt.Sprintf("node-%06d", i)), CPUPercent: float64(i)}, time.Now())
				}
				b.StartTimer()
				require.Zero(b, e.Pass(b.Context()).Pending)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1_000, "ns/report")
		})
	}
}

// Parking gives back what a burst has taken.
func TestParkingShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &MemoryLedger{}
		e := parkedView(t, l, nil, 1, 3_000)
		for i := range 3_000 {
			for _, id := range names(fmt.Sprintf("huge%05d-", i), 2) {
				commit(t, l, Release{Capsule: id, Final: true})
			}
		}
		time.Sleep(2 * time.Hour)
		for range 30 {
			e.Pass(t.Context())
		}
		p := &e.view.queue.parked
		assert.Empty(t, p.spots)
		assert.Empty(t, p.shelves)
		assert.Empty(t, p.ends)
		assert.Empty(t, e.view.queue.classes)
	})
}

// A class for which others could move is tried again when any node gains room: at once if that is seldom, and else after waits that
// double, so that room which comes all the time causes no more than a few searches. A class without that answer is not tried.
func TestRoomElsewhereTriesAgainWhatMovesMayHelp(t *testing.T) {
	for _, moves := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			l, nav := &MemoryLedger{}, &greedy{}
			nav.after = func(plan *Plan) {
				var nofit *NoFit
				if len(plan.Unplaced) > 0 && moves && errors.As(plan.Unplaced[0].Why, &nofit) {
					plan.Unplaced[0].Why = nofit.DespiteMoves()
				}
			}
			commit(t, l, PutNode{machine("n", 1)}, Submit{IDs: names("c", 3), Spec: wants(9)})
			const long = 1000 * time.Hour
			r := newRig(t, l, &Engine{Navigator: nav, ParkFor: long, Backoff: Backoff{Max: long}})
			r.run()
			at, room := time.Hour, int64(0)
			r.until(at)
			tries := func(times int, pause time.Duration) int {
				nav.asked = nil
				for range times {
					room = 3 - max(1, room)
					commit(t, l, PutNode{machine("m", room)})
					at += pause
					r.until(at)
				}
				return len(nav.asked)
			}
			if !moves {
				require.Zero(t, tries(10, time.Hour))
				return
			}
			require.Equal(t, 10, tries(10, time.Hour))
			often := tries(10_000, time.Millisecond)
			require.InDelta(t, 10, often, 2)
			for _, asked := range nav.asked {
				require.Len(t, asked, 1, "a trial is of one capsule")
			}
			require.Zero(t, tries(1, time.Millisecond))
			at += 24 * time.Hour
			r.until(at)
			require.Equal(t, 3, tries(3, time.Hour))
		})
	}
}

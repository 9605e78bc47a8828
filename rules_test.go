package orbit

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestEveryRecountBites breaks what the state counts for each rule that Verify recounts, and nothing else: Verify must notice.
func TestEveryRecountBites(t *testing.T) {
	spec := cpuSpec(1)
	spec.Group = "g"
	spec.Apart = []Apart{{Group: "g", Level: NodeKey}}
	c := newCourt(t, cpuNode("n", 10), submitOf(spec, "a", "b"), submitOf(cpuSpec(1), "waits"), gangOf("gang", 0, "m"),
		PutBudget{Budget{ID: "budget", Group: "g"}}, cpuQueue("queue", "", 1))
	c.commits(placeOn("a", "n"), Protect{Capsule: "a", For: time.Minute})
	c.commits(Nominate{Capsule: "waits", Parts: []NominatedRoom{{Node: "n", Room: Resources{CPU: 1}}}, Ends: time.Unix(1e9, 0)})
	broken := map[string]struct {
		breaks func(s *State)
		fault  string
	}{
		"protect": {func(s *State) {
			s.protected.Delete(protection{capsule: "a"})
			s.protected.ReplaceOrInsert(protection{"b", 1, time.Minute})
		}, `capsule "b" is protected`},
		"company":  {func(s *State) { s.company = s.ownCompany(true); s.company.addRules(spec, 1) }, "what rules Apart and Even count"},
		"near":     {func(s *State) { s.countWaiting(s.Capsule("b").Spec, 1) }, `group "g" counts 2 pending`},
		"gang":     {func(s *State) { g := *s.Gang("gang"); g.Placed = []int{1}; s.gangs.ReplaceOrInsert(&g) }, `gang "gang"`},
		"nominate": {func(s *State) { s.nominated.addRooms(s.Capsule("waits").Nomination(), 1) }, "nominations of"},
		"quota": {func(s *State) {
			q := *s.queue("queue")
			q.living++
			s.queues.ReplaceOrInsert(queueAt{q.id, &q})
		}, `queue "queue" counts`},
		"failures": {func(s *State) { s.failed.ReplaceOrInsert(failureRecord{"nobody", &Failures{}}) }, `capsule "nobody"`},
		"budget": {func(s *State) {
			of := *s.coverage(memberSet{name: "g"})
			of.healthy.placed++
			s.covered.ReplaceOrInsert(&of)
		}, "budgets"},
	}
	require.NoError(t, c.now().Verify())
	for i := range rules {
		if rules[i].recount == nil {
			continue
		}
		b, known := broken[rules[i].name]
		require.True(t, known, "break what rule %s counts", rules[i].name)
		s := c.now().thaw()
		b.breaks(s)
		require.ErrorContains(t, s.Verify(), b.fault, rules[i].name)
		require.NoError(t, c.now().Verify())
		delete(broken, rules[i].name)
	}
	require.Empty(t, broken, "rules without a recount")
}

package race_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/nav"
	"github.com/orbitsched/orbit/place"
	"github.com/orbitsched/orbit/sim/race"
)

const ms = time.Millisecond

// Where the seeds of the tests of safety and liveness begin, and how many they try.
var (
	raceSeed  = flag.Uint64("race.seed", 1, "the first seed of the races")
	raceSeeds = flag.Int("race.seeds", 50, "how many seeds the races try")
)

// seeds is how many seeds a race tries: a tenth of them with -short.
func seeds(n int) int {
	if testing.Short() {
		return max(1, n/10)
	}
	return n
}

// cpus is a number of nodes with so many cores.
func cpus(nodes int, cores int64) (out []orbit.Node) {
	for i := range nodes {
		out = append(out, orbit.Node{
			ID: orbit.NodeID(fmt.Sprintf("n%d", i+1)), Capacity: orbit.Resources{orbit.CPU: 1000 * cores},
			Labels: map[string]string{"rack": fmt.Sprint("r", i/2)},
		})
	}
	return out
}

// cores is a spec that takes so many.
func cores(n int64, module string, class orbit.AppClass) *orbit.Spec {
	return &orbit.Spec{Module: module, Class: class, Envelope: orbit.Envelope{Reservation: orbit.Resources{orbit.CPU: 1000 * n}}}
}

func services(seed uint64) func() orbit.Navigator {
	return func() orbit.Navigator { return &nav.Services{Placement: &place.Indexed{Seed: seed}} }
}

// everything goes wrong at times.
var everything = race.Faults{Delay: 0.3, Crash: 0.01, Conflict: 0.03, Unavailable: 0.03, Unknown: 0.05, Dropped: 0.03, Late: 0.05, Stale: 0.1}

// contest is two schedulers that want the same capsules on the same few nodes, which have not room for all at once.
func contest() *race.Config {
	r := &race.Config{
		Nodes:     cpus(3, 4),
		Faults:    everything,
		Heartbeat: time.Second,
		Steps:     20_000,
		Schedulers: []race.Scheduler{
			{Name: "a", Navigator: services(1), JobTime: 50 * ms, TaskTime: 5 * ms},
			{Name: "b", Navigator: services(1), JobTime: 20 * ms, TaskTime: 5 * ms, Together: -1},
		},
		Command: "go test ./sim/race -run '^TestRaceSafety$' -race.seed %d -race.seeds 1",
	}
	for i := range 6 {
		r.Jobs = append(r.Jobs, race.Job{
			At: time.Duration(i) * 40 * ms, Owner: []string{"", "a", "b"}[i%3], Tasks: 2, Lasts: time.Duration(1+i%3) * 300 * ms,
			Spec: cores(1+int64(i%2), fmt.Sprint("m", i), orbit.BestEffort),
		})
	}
	return r
}

// gangs is a navigator of gangs beside one of single capsules and one that packs, all bets of all kinds.
func gangs() *race.Config {
	r := contest()
	r.Nodes = cpus(4, 4)
	r.Schedulers = []race.Scheduler{
		{Name: "gang", Navigator: func() orbit.Navigator { return &nav.Gang{} }, JobTime: 100 * ms, Together: 2},
		{Name: "service", Navigator: services(3), JobTime: 10 * ms, Coarse: true, Together: 2},
		{Name: "batch", Navigator: func() orbit.Navigator { return &nav.Batch{} }, JobTime: 30 * ms, Whole: true},
	}
	r.Jobs = []race.Job{
		{Owner: "service", Spec: cores(1, "s", orbit.BestEffort), Tasks: 4, Lasts: 500 * ms},
		{Owner: "gang", Spec: cores(2, "g", orbit.GangClass), Tasks: 4, Gang: true, Levels: []string{"rack"}, Lasts: time.Second},
		{Owner: "batch", Spec: cores(1, "b", orbit.Batch), Tasks: 3, Lasts: 400 * ms},
		{At: 200 * ms, Owner: "gang", Spec: cores(3, "h", orbit.GangClass), Tasks: 3, Gang: true, Min: 2, Lasts: time.Second},
		{At: 300 * ms, Owner: "batch", Spec: cores(4, "c", orbit.Batch), Tasks: 1, Lasts: 200 * ms},
	}
	return r
}

// teams is contest with quotas that change: two teams borrow from a cohort, and one of the engines is fair.
func teams() *race.Config {
	r := contest()
	put := func(at time.Duration, id, parent orbit.QueueID, nominal, borrow, lend int64) {
		q := orbit.Queue{ID: id, Parent: parent, Nominal: map[string]int64{"cpu": 1000 * nominal}}
		if parent != "" {
			q.Borrow, q.Lend = map[string]int64{"cpu": 1000 * borrow}, map[string]int64{"cpu": 1000 * lend}
		}
		r.Events = append(r.Events, race.Event{At: at, Do: []orbit.Commitment{orbit.PutQueue{Queue: q}}})
	}
	put(0, "cohort", "", 1, 0, 0)
	put(0, "red", "cohort", 2, 2, 1)
	put(0, "blue", "cohort", 2, 1, 2)
	put(150*ms, "red", "cohort", 0, 3, 1)
	put(300*ms, "blue", "cohort", 3, 1, 0)
	put(600*ms, "cohort", "", 2, 0, 0)
	put(900*ms, "red", "cohort", 2, 3, 2)
	fair := r.Schedulers[1].Navigator
	r.Schedulers[1].Navigator = func() orbit.Navigator { return &nav.Fair{Navigator: fair()} }
	for i := range r.Jobs {
		r.Jobs[i].At += 10 * ms
		r.Jobs[i].Spec.Queue = []orbit.QueueID{"red", "blue", "red", "cohort"}[i%4]
	}
	return r
}

// Whatever goes wrong and in whatever order, no promise is broken.
func TestRaceSafety(t *testing.T) {
	for name, r := range map[string]*race.Config{"contest": contest(), "gangs": gangs(), "teams": teams()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { // gangs hold room, and holds end
				r.Sleep = time.Sleep
				if res := r.Hunt(*raceSeed, seeds(scale.Of(*raceSeeds, 500))); res != nil {
					t.Fatal(res.Story())
				}
			})
		})
	}
}

// When faults have ended, everything that fits is placed soon.
func TestRaceLiveness(t *testing.T) {
	scale.Long(t)
	for name, r := range map[string]*race.Config{"contest": contest(), "gangs": gangs(), "teams": teams()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r.Sleep = time.Sleep
				r.Faults.Until, r.Bound = 5*time.Second, 600
				r.Command = "go test ./sim/race -run '^TestRaceLiveness$' -race.seed %d -race.seeds 1"
				if res := r.Hunt(*raceSeed, seeds(scale.Of(*raceSeeds, 500))); res != nil {
					t.Fatal(res.Story())
				}
			})
		})
	}
}

// In a race with time to end everything is placed, the faults that were asked for happen, and all of it is told.
func TestRaceHappens(t *testing.T) {
	r := contest()
	told, placed := strings.Builder{}, 0
	for seed := range uint64(60) {
		res := r.Run(seed)
		require.NoError(t, res.Err)
		told.WriteString(res.History)
		for _, s := range res.Schedulers {
			placed += s.Jobs
		}
		assert.Zero(t, res.Waiting)
	}
	assert.Equal(t, 60*6, placed, "jobs")
	for _, what := range []string{
		"crashes before", "starts anew", "refused for no reason", "snapshot: unavailable", "changes: unavailable", "wait: unavailable", "propose: unavailable",
		"the answer is lost", "the message is lost", "the message is late by", "late proposal of", "stale snapshot", "conflict: bet", "conflict: commitment",
		"committed at", "wakes for revision",
	} {
		assert.Contains(t, told.String(), what)
	}
}

// The same seed gives the same history, and so does replaying its decisions; other seeds give others.
func TestRaceSameSeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		if scale.Race && seed%4 != 0 {
			return
		}
		r := []*race.Config{contest(), gangs()}[rapid.IntRange(0, 1).Draw(t, "race")]
		first, again := r.Run(seed), r.Run(seed)
		require.Equal(t, first.History, again.History)
		require.Equal(t, first.Decisions, again.Decisions)
		require.Equal(t, first.History, r.Replay(first.Decisions).History)
		require.NotEqual(t, first.History, r.Run(seed+1).History)
	})
}

// digest is what histories come down to.
func digest() string {
	sum := sha256.New()
	for seed := range uint64(20) {
		fmt.Fprint(sum, contest().Run(seed).History, gangs().Run(seed).History)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// Another process, with other seeds of its hash functions, sees the same histories.
func TestRaceOtherProcess(t *testing.T) {
	scale.Long(t)
	if os.Getenv("RACE_DIGEST") != "" {
		fmt.Println("digest:", digest())
		return
	}
	self, err := os.Executable()
	require.NoError(t, err)
	mine := digest()
	for range 2 {
		cmd := exec.CommandContext(t.Context(), self, "-test.run", "^TestRaceOtherProcess$", "-test.v")
		cmd.Env = append(os.Environ(), "RACE_DIGEST=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		assert.Contains(t, string(out), "digest: "+mine)
	}
}

// A race that cannot be run says why.
func TestRaceFaults(t *testing.T) {
	r := &race.Config{
		Schedulers: []race.Scheduler{{Name: "world", JobTime: -1}, {Name: "a b"}},
		Jobs:       []race.Job{{Owner: "absent"}, {Spec: &orbit.Spec{}, Tasks: 1, Lasts: 1, On: []orbit.NodeID{"a", "b"}, Replaced: true, Again: true}},
	}
	err := r.Run(1).Err
	require.ErrorIs(t, err, orbit.ErrInvalid)
	for _, what := range []string{`"world"`, `"a b"`, "no Navigator", "negative time", `"absent"`, "needs a Spec", "job 2 has 1 tasks and 2 nodes"} {
		assert.ErrorContains(t, err, what)
	}
	for _, decisions := range []string{"a/1", "a/1 delay soon", "a/1 delay 1s more"} {
		assert.ErrorIs(t, contest().Replay([]string{decisions}).Err, orbit.ErrInvalid)
	}
}

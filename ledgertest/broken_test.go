package ledgertest_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/scale"
	"github.com/orbitsched/orbit/ledgertest"
)

// broken are ledgers that break one rule each. The case that is named first must catch it, and say this; others
// may.
var broken = []struct{ breaks, caught, says string }{
	{"says less than it takes", "limits", ""},
	{"calls what is malformed a mistake", "invalid", "must be refused as"},
	{"panics at odd input", "invalid", "panic"},
	{"blames the first", "invalid", "blames commitment 0, not 1"},
	{"takes a slash for the end", "odd-ids", "made under the id"},
	{"keeps what it was given", "caller-keeps", "the history has changed"},
	{"writes to what it was given", "caller-keeps", "has written to the proposal"},

	{"forgets what it carries", "carried", "it must be"},
	{"brings back what has ended", "final", ""},
	{"ends things twice", "release", ""},
	{"ignores where it was", "release", ""},

	{"has room for one more", "capacity", ""},
	{"counts holds for little", "capacity", "must be refused"},
	{"knows one dimension", "dimensions", "must be refused"},
	{"lets sums wrap", "wrap", "must be refused"},
	{"never shrinks", "shrink", ""},
	{"spares nobody", "evictions", "it must evict [w]"},
	{"lets begin what has to wait", "remains-room", "must be refused"},
	{"lets begin what has to wait", "race-agents", "is started on node"},
	{"takes what leaves for stopped", "remains", "must be"},
	{"forgets when it was", "failures", "it must be"},
	{"takes what is given up for stopped", "giving-up", "it must be"},
	{"forgets who comes after whom", "rolling", "waits to begin"},
	{"ignores budgets", "budgets", "must be refused"},
	{"lets every priority pass", "budget-priorities", "must be refused"},
	{"refuses ends", "budget-ends", "must be committed"},
	{"rounds budgets to tens", "budget-sizes", "must be refused"},
	{"protects for a moment", "protection", "it must be"},
	{"lends for ever", "loans", "must be refused"},
	{"lends to all", "loans", "must be refused"},
	{"never lends", "loans-beside", "must be committed"},
	{"recalls like others", "recalls", "must be committed"},
	{"begins what is ready", "ready", "it must be true, true"},
	{"takes what is placed for ready", "budgets-ready", "must be refused"},
	{"keeps what crashes", "free-unready", ""},
	{"checks, then acts", "race-budgets", ""},
	{"has quota for one more", "queues", ""},
	{"borrows without a limit", "queues", ""},
	{"lends all", "queues", ""},
	{"weighs all queues alike", "queues", ""},
	{"forgets whose queue", "queues", ""},
	{"checks, then acts", "race-quota", ""},
	{"checks, then acts", "race-unready", ""},
	{"shares devices without counting", "devices", "must be refused"},
	{"ignores sick devices", "sick-device", "must be refused"},
	{"ignores requirements", "requirements", "must be refused"},
	{"ignores drains", "requirements", "must be refused"},
	{"forgets who is apart", "apart", "must be refused"},
	{"forgets who is near", "near", "must be refused"},
	{"forgets who is even", "even", "must be refused"},
	{"forgets who is even", "company-receipts", "must be refused"},
	{"forgets who is apart", "company-facts", "must be refused"},
	{"forgets wishes", "company-wishes", "it must wish"},
	{"takes wishes for rules", "company-wishes", "must be committed"},
	{"declares what is there", "even-kubernetes", ""},
	{"lets half a gang in", "gang", "must be refused"},
	{"brings back what has ended", "gang-done", ""},
	{"lets half a gang in", "gang-rebuild", ""},
	{"forgets the minimum of gangs", "gang-minimum", "must be refused"},
	{"lets the first join", "gang-grows", ""},
	{"forgets whose labels", "carried", "it must be"},
	{"lets half a gang in", "gang-replaces", ""},
	{"tears gangs", "race-gangs", ""},

	{"looks at what, not when", "return", "must be refused"},
	{"ignores bets", "bets", "must be refused"},
	{"judges bets afterwards", "before", "must be refused"},
	{"calls a mistake a conflict", "kinds", "must be refused as"},
	{"calls a conflict a mistake", "kinds", "must be refused as"},
	{"forgets who has won", "receipt", "it must say"},
	{"asks for a view that is not there", "receipt", "asks for a view"},
	{"gives no receipt", "receipt", "without a *orbit.Rejection"},
	{"refuses now and then", "check", "was refused"},

	{"half-applies what it refuses", "atomic", "has changed the state"},
	{"applies an id twice", "resent", "sent again"},
	{"remembers what it has refused", "refused-id", "must be committed"},
	{"takes all without an id for one", "no-id", "they are two"},
	{"one takes the others down", "batch", ""},
	{"answers a batch backwards", "batch", ""},
	{"forgets the end of a batch", "batch-wide", "have 100 outcomes"},
	{"judges a batch on one state", "batch-rivals", ""},

	{"tells the history backwards", "history", "it follows revision"},
	{"counts from one", "history", "it follows revision"},
	{"repeats the last change", "history", "it follows revision"},
	{"forgets which node was left", "history", "names node"},
	{"uses a revision twice", "history", ""},
	{"says a revision that is not its own", "history", ""},
	{"loses a change now and then", "following", ""},
	{"keeps its history for ever", "compaction", "it must be"},
	{"forgets without a word", "compaction", ""},
	{"answers from a cache", "fresh", "a snapshot"},
	{"answers from a mirror that lags", "fresh", "a snapshot"},
	{"refuses from a mirror that lags", "load", "stale: Propose"},
	{"never wakes a waiter", "wait", "deadline exceeded"},
	{"wakes one of many", "wait", "deadline exceeded"},
	{"wakes for nothing", "wait", "it must be the context's error"},
	{"loses wake-ups", "wake-ups", "deadline exceeded"},

	{"takes an end for a conflict", "ended", "was judged"},
	{"commits though it is too late", "ended", "was committed"},
	{"takes a timeout for a conflict", "deadlines", "no rival stood in the way"},
	{"takes a timeout for nothing sent", "deadlines", "nothing was sent"},
	{"calls back under its lock", "callbacks", "has not ended"},

	{"checks, then acts", "race-one", ""},
	{"loses commits in a crowd", "race-marks", ""},
}

// breaking makes a ledger that is broken in this way.
func breaking(breaks string) (open func(*testing.T) orbit.Ledger, suite ledgertest.Suite) {
	open = func(*testing.T) orbit.Ledger {
		h := newPlane(breaks, orbit.Limits{History: 2000})
		h.lag = 2 * time.Millisecond
		if strings.Contains(breaks, "timeout") {
			h.slow = 100 * time.Microsecond
		}
		return like(breaks, h)
	}
	suite.Peer = func(_ *testing.T, l orbit.Ledger) orbit.Ledger {
		return like(breaks, l.(interface{ peer() *handle }).peer())
	}
	return open, suite
}

// like is what a handle is seen as.
func like(breaks string, h *handle) orbit.Ledger {
	switch breaks {
	case "checks, then acts":
		return checkThenAct{h}
	case "tears gangs":
		return tornGangs{h}
	case "refuses from a mirror that lags":
		return staleVerdicts{h}
	case "loses commits in a crowd":
		return lostInACrowd{h, make(chan struct{}, 1)}
	case "panics at odd input":
		return panicky{h}
	}
	return h
}

func TestBrokenLedgersAreCaughtByName(t *testing.T) {
	scale.Long(t)
	tried := map[string]bool{}
	for _, b := range broken {
		if scale.Race && tried[b.caught] {
			continue // what is racy would be with one of them too
		}
		tried[b.caught] = true
		t.Run(b.caught+"/"+b.breaks, func(t *testing.T) {
			t.Parallel()
			open, suite := breaking(b.breaks)
			switch suite.Patience = 3 * time.Second; {
			case b.caught == "load":
				suite.Patience = time.Minute
			case b.says == "deadline exceeded" || b.says == "has not ended":
				suite.Patience = 300 * time.Millisecond // it waits for ever
			}
			suite.Skip = allBut(b.caught)
			failures := suite.Check(t, open)
			require.Len(t, failures, 1)
			t.Logf("%.900v", failures)
			require.Contains(t, failures, b.caught)
			assert.ErrorContains(t, failures[b.caught], b.says)
		})
	}
}

// allBut skips every rule but one.
func allBut(name string) map[string]string {
	skip := map[string]string{}
	for _, r := range ledgertest.RuleNames() {
		if r != name {
			skip[r] = "another rule is looked at"
		}
	}
	return skip
}

// What is badly broken breaks many rules, and neither stops the suite nor ends the process.
func TestBadlyBroken(t *testing.T) {
	scale.Long(t)
	if scale.Race {
		t.Skip("it takes long, and looks at no data")
	}
	for breaks, least := range map[string]int{"never wakes a waiter": 3, "half-applies what it refuses": 20, "answers from a mirror that lags": 3, "gives no receipt": 30} {
		t.Run(breaks, func(t *testing.T) {
			t.Parallel()
			open, suite := breaking(breaks)
			suite.Patience, suite.Scale, suite.Skip = 500*time.Millisecond, 0.2, map[string]string{"limits": "slow", "compaction": "slow"}
			failures := suite.Check(t, open)
			for name, err := range failures {
				t.Logf("%s: %.300v", name, err)
			}
			assert.GreaterOrEqual(t, len(failures), least)
		})
	}
}

// Without a break the same ledger passes.
func TestPlane(t *testing.T) {
	scale.Long(t)
	open, suite := breaking("")
	suite.Run(t, open)
	open = func(*testing.T) orbit.Ledger { return newPlane("", orbit.Limits{}) }
	ledgertest.Suite{Skip: map[string]string{"compaction": "has been looked at", "limits": "have been looked at"}}.Run(t, open)
}

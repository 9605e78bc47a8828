package harness_test

import (
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/harness"
)

var errSeen = errors.New("seen")

// suite has a rule for each way in which a case can end.
func suite() *harness.Suite[*harness.Case] {
	rules := []harness.Rule[*harness.Case]{
		harness.Define("holds", "", "it holds", "or else", func(c *harness.Case) { c.Must(nil); c.Notef("a note") }),
		harness.Define("fails", "7 (I7)", "it fails", "because", func(c *harness.Case) { c.Where = "here: "; c.Must(errSeen, "looking") }),
		harness.Define("panics", "", "it panics", "because", func(*harness.Case) { panic("ouch") }),
		harness.Define("exits", "", "it exits", "because", func(*harness.Case) { runtime.Goexit() }),
		harness.Define("hangs", "", "it hangs", "because", func(*harness.Case) { select {} }),
		harness.Define("unfit", "", "it is not fit", "because", func(c *harness.Case) { c.Skipf("too small") }),
	}
	return &harness.Suite[*harness.Case]{Rules: rules, Try: func(_ *testing.T, r *harness.Rule[*harness.Case]) *harness.Case {
		return harness.Try(50*time.Millisecond, r.Check)
	}}
}

func TestCheck(t *testing.T) {
	broken := suite().Check(t)
	require.Len(t, broken, 4)
	assert.EqualError(t, broken["fails"], "rule: it fails\nwhy:  because\nsee:  docs/scenarios.md, line 7 (I7)\nseen: here: looking: seen")
	assert.ErrorIs(t, broken["fails"], errSeen)
	assert.ErrorContains(t, broken["panics"], "it panicked: ouch")
	assert.ErrorContains(t, broken["exits"], "it exited its goroutine")
	assert.ErrorContains(t, broken["hangs"], "has not ended after 50ms")
}

func TestSkip(t *testing.T) {
	s := suite()
	s.Skip = map[string]string{"fails": "known", "panics": "known", "exits": "known", "hangs": "known"}
	require.NoError(t, s.Fault())
	assert.Empty(t, s.Check(t))
	s.Run(t)
	s.Skip["no such"] = "a slip of the pen"
	assert.ErrorContains(t, s.Fault(), `Skip names "no such"`)
}

func TestWithin(t *testing.T) {
	require.NoError(t, harness.Within(time.Minute, "the call", func() {}))
	assert.ErrorContains(t, harness.Within(time.Minute, "the call", func() { panic("ouch") }), "the call: it panicked: ouch")
	assert.EqualError(t, harness.Within(time.Millisecond, "the call", func() { select {} }), "the call has not returned after 1ms")
}

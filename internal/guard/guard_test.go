package guard_test

import (
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/guard"
)

type text func() string

func (f text) Error() string { return f() }

// hostile are values whose texts do not come.
func hostile() map[string]error {
	var endless text
	endless = func() string { panic(endless) }
	return map[string]error{
		"exits":  text(func() string { runtime.Goexit(); return "" }),
		"blocks": text(func() string { time.Sleep(time.Hour); return "" }),
		"panics": endless,
	}
}

// A call that crashes is told from one that fails, whatever it panics with, and then is called once.
func TestRunAndCall(t *testing.T) {
	fails := errors.New("fails")
	calls := map[string]func() error{
		"panics": func() error { panic("of itself") },
		"exits":  func() error { runtime.Goexit(); return nil },
	}
	for name, value := range hostile() {
		calls["panics with a value that "+name] = func() error { panic(value) }
	}
	for name, f := range calls {
		synctest.Test(t, func(t *testing.T) {
			err := guard.Run(f)
			require.True(t, guard.Crashed(err), name)
			require.Contains(t, err.Error(), "it ")
			told := 0
			go guard.Call(f, func(err error) { told++; assert.True(t, guard.Crashed(err), name) })
			time.Sleep(2 * time.Hour)
			synctest.Wait()
			require.Equal(t, 1, told, name)
			wraps := fmt.Errorf("%w, which is what another call has met", err)
			require.False(t, guard.Crashed(guard.Run(func() error { return wraps })), name)
		})
	}
	require.Equal(t, fails, guard.Run(func() error { return fails }))
	require.NoError(t, guard.Run(func() error { return nil }))
}

// A text that does not come is replaced; any other is what fmt makes of the value.
func TestText(t *testing.T) {
	for name, value := range hostile() {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			require.Contains(t, guard.Text(value), "guard_test.text, whose text", name)
			require.LessOrEqual(t, time.Since(begun), time.Second)
			require.True(t, guard.Crashed(guard.Said(value)), name)
			time.Sleep(2 * time.Hour) // until the goroutine is gone
		})
	}
	require.Equal(t, "said", guard.Text(text(func() string { return "said" })))
	require.Equal(t, "plain", guard.Text("plain"))
	fails := text(func() string { return "fails" })
	require.NoError(t, guard.Said(nil))
	require.EqualError(t, guard.Said(fails), "fails")
	require.True(t, guard.Crashed(errors.Unwrap(guard.Said(guard.Run(func() error { panic(1) })))))
	require.Equal(t, "[1 2]", guard.Text([]int{1, 2}))
	require.Contains(t, guard.Text(text(func() string { panic("once") })), "once")
}

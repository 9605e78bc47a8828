package rate_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/rate"
)

// Ten lines are written at once and then one every 10 s, which says how many were left out.
func TestLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&text, nil)))
		defer slog.SetDefault(before)
		var log rate.Log
		for range 250 {
			log.Error(t.Context(), "orbit: it fails", errors.New("broken"), slog.String("of", "x"))
			time.Sleep(100 * time.Millisecond)
		}
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		require.Len(t, lines, 12)
		require.Contains(t, lines[9], `msg="orbit: it fails" of=x error=broken dropped=0`)
		require.Contains(t, lines[10], "dropped=90")
	})
}

//go:build stress

package claim_test

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// scale is what SCHEDULE_STRESS_SCALE says: it multiplies numbers and durations; 1 by default.
func scale(t *testing.T) float64 {
	text := os.Getenv("SCHEDULE_STRESS_SCALE")
	if text == "" {
		return 1
	}
	f, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	require.Positive(t, f)
	return f
}

func scaled(t *testing.T, n int) int { return max(1, int(float64(n)*scale(t))) }

// 2,000 requests at once against 500 slots: each slot is handed out exactly once, every request ends.
func TestStressExtremeScale(t *testing.T) { extremeScale(t, scaled(t, 2000), scaled(t, 500)) }

// 30% of the slots conflict at the first attempt; all are claimed all the same.
func TestStressConflictInjectionUnderLoad(t *testing.T) { conflictInjection(t, scaled(t, 500)) }

// Requests and notifications without a pause for 600 ms; Shutdown returns within 5 s.
func TestStressStorm(t *testing.T) { storm(t, time.Duration(scaled(t, 600))*time.Millisecond) }

// Callers of Enqueue while Shutdown is called; neither hangs.
func TestStressConcurrentEnqueueAndShutdown(t *testing.T) {
	for range scaled(t, 20) {
		enqueueAndShutdown(t, 200)
	}
}

// The same for longer.
func TestStressDevicesRace(t *testing.T) { devicesRace(t, scaled(t, 400)) }

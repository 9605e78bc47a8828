//go:build stress

package claim_test

import (
	"testing"
	"time"

	"github.com/orbitsched/orbit/internal/scale"
)

// 2,000 requests at once for 500 slots: each slot is handed out exactly once, and every request ends.
func TestStressExtremeScale(t *testing.T) { extremeScale(t, scale.Of(0, 2000), scale.Of(0, 500)) }

// 30% of the slots conflict at the first attempt. All are claimed all the same.
func TestStressConflictInjectionUnderLoad(t *testing.T) {
	bubble(t, func(t *testing.T) { conflictInjection(t, scale.Of(0, 500)) })
}

// Requests and notifications without a pause for 600 ms. Shutdown returns within 5 s.
func TestStressStorm(t *testing.T) {
	bubble(t, func(t *testing.T) { storm(t, time.Duration(scale.Of(0, 600))*time.Millisecond) })
}

// Enqueue and Shutdown are called at the same time. Neither hangs.
func TestStressConcurrentEnqueueAndShutdown(t *testing.T) {
	for range scale.Of(0, 20) {
		enqueueAndShutdown(t, 200)
	}
}

// The same for longer.
func TestStressDevicesRace(t *testing.T) {
	bubble(t, func(t *testing.T) { devicesRace(t, scale.Of(0, 400)) })
}

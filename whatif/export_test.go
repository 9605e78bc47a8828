package whatif

import (
	"context"

	"github.com/orbitsched/orbit"
)

// State returns what the World's constellation is after the last step.
func (w *World) State() *orbit.State {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state(context.Background())
}

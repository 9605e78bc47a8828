package agent_test

import (
	"testing"

	"github.com/orbitsched/orbit/internal/scale"
)

// Each world of a property goes through many minutes, so a few are enough for every day.
func TestMain(m *testing.M) { scale.Main(m, 10, 400) }

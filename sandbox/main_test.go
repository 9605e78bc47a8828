package sandbox_test

import (
	"testing"

	"github.com/orbitsched/orbit/internal/scale"
)

func TestMain(m *testing.M) { scale.Main(m, 30, 200) }

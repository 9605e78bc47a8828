package diskledger_test

import (
	"os"
	"testing"

	"github.com/orbitsched/orbit/internal/scale"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childEnv); dir != "" {
		child(dir)
		return
	}
	scale.Main(m, 20, 200)
}

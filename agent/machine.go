package agent

import (
	"os"
	"strings"
	"sync"

	"github.com/orbitsched/orbit"
)

// machine is the default name of the machine: that of its present boot, or if the system has none, of the host. It is
// the same for all agents of the machine. After a reboot, when nothing runs there any more, it is another one.
var machine = sync.OnceValue(func() string {
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(boot) > 0 {
		return "boot " + strings.TrimSpace(string(boot))
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		return "host " + host
	}
	return "process " + orbit.NewProposalID().String()
})

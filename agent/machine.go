package agent

import (
	"os"
	"strings"
	"sync"

	"github.com/orbitsched/orbit"
)

// ThisMachine returns the default of [Agent.Machine]: the id of the machine's present boot or, if the system has none,
// its host name. It is the same in all processes of the machine. After a reboot, when nothing runs there any more, it is
// another one. If capsules of one node id may run under several runtimes of the machine, add the name of the runtime.
func ThisMachine() string { return machine() }

var machine = sync.OnceValue(func() string {
	if boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id"); err == nil && len(boot) > 0 {
		return "boot " + strings.TrimSpace(string(boot))
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		return "host " + host
	}
	return "process " + orbit.NewProposalID().String()
})

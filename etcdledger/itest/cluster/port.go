package cluster

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
)

// Ports that systems do not hand out to connections of their own accord: while a member is dead, its port stays free.
const lowestPort, highestPort = 20_000, 30_000

// freePorts returns n addresses on loopback on which no process listens.
func freePorts(n int) (out []string, err error) {
	const tries = 1000
	for range tries {
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(lowestPort+rand.IntN(highestPort-lowestPort)))
		l, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		defer func() { _ = l.Close() }() // only when all have been found, so that none is found twice
		if out = append(out, address); len(out) == n {
			return out, nil
		}
	}
	return nil, errors.New("cluster: no free ports on loopback")
}

// Package itest tests etcdledger on real etcd servers: one member and three, on loopback, each an operating-system
// process of its own that can be killed. The tests are short; with ORBIT_ITEST_SCALE=10 in the environment they do
// ten times as much.
package itest

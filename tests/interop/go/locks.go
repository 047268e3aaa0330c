// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// The locks of etcd's own Go client as its users have them, driven by lines: ENDPOINTS TTL-SECONDS
//
//	lock NAME | read NAME | write NAME | campaign NAME VALUE    -> in KEY, when it is its own
//	free           what was taken last    -> out
//	proclaim VALUE of the election that was won last    -> out
//	leader NAME    of an election         -> leads VALUE
//	observe NAME   an election            -> leads VALUE, whenever it changes
//	contend NAME N times, each of them    -> TOKEN SINCE LAST, as fault/contend.c; then out
//
// Its keys are gone when its input ends, and stay for the rest of the lease if it is killed.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	recipe "go.etcd.io/etcd/contrib/recipes"
)

var ctx = context.Background()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What is taken, and how it is given back.
type taken struct {
	key      string
	free     func() error
	proclaim func(value string) error
}

func lock(s *concurrency.Session, name string) taken {
	m := concurrency.NewMutex(s, name)
	must(m.Lock(ctx))
	return taken{key: m.Key(), free: func() error { return m.Unlock(ctx) }}
}

func read(s *concurrency.Session, name string) taken {
	m := recipe.NewRWMutex(s, name)
	must(m.RLock())
	return taken{key: name + "/read", free: m.RUnlock}
}

func write(s *concurrency.Session, name string) taken {
	m := recipe.NewRWMutex(s, name)
	must(m.Lock())
	return taken{key: name + "/write", free: m.Unlock}
}

func campaign(s *concurrency.Session, name, value string) taken {
	e := concurrency.NewElection(s, name)
	must(e.Campaign(ctx, value))
	return taken{e.Key(), func() error { return e.Resign(ctx) },
		func(value string) error { return e.Proclaim(ctx, value) }}
}

func take(s *concurrency.Session, words []string) taken {
	switch words[0] {
	case "lock":
		return lock(s, words[1])
	case "read":
		return read(s, words[1])
	case "write":
		return write(s, words[1])
	case "campaign":
		return campaign(s, words[1], words[2])
	}
	must(fmt.Errorf("what is %q?", words))
	return taken{}
}

func leader(s *concurrency.Session, name string) string {
	answer, err := concurrency.NewElection(s, name).Leader(ctx)
	must(err)
	return string(answer.Kvs[0].Value)
}

func observe(s *concurrency.Session, name string) {
	for answer := range concurrency.NewElection(s, name).Observe(ctx) {
		fmt.Println("leads", string(answer.Kvs[0].Value))
	}
}

// The clock that all processes share.
func now() int64 {
	const boottime = 7
	var ts syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, boottime, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func contend(s *concurrency.Session, name string, times int) {
	for i := 0; i < times; i++ {
		m := concurrency.NewMutex(s, name)
		must(m.Lock(ctx))
		since := now()
		answer, err := s.Client().Get(ctx, m.Key())
		must(err)
		time.Sleep(time.Millisecond)
		fmt.Println(answer.Kvs[0].CreateRevision, since, now())
		must(m.Unlock(ctx))
	}
}

func obey(s *concurrency.Session, mine *taken, words []string) {
	switch words[0] {
	case "free":
		must(mine.free())
		fmt.Println("out")
	case "proclaim":
		must(mine.proclaim(words[1]))
		fmt.Println("out")
	case "observe":
		go observe(s, words[1])
	case "leader":
		fmt.Println("leads", leader(s, words[1]))
	case "contend":
		times, err := strconv.Atoi(words[2])
		must(err)
		contend(s, words[1], times)
		fmt.Println("out")
	default:
		*mine = take(s, words)
		fmt.Println("in", mine.key)
	}
}

func main() {
	ttl, err := strconv.Atoi(os.Args[2])
	must(err)
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	must(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	must(err)
	var mine taken
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		obey(session, &mine, strings.Fields(lines.Text()))
	}
	must(session.Close())
}

// SPDX-FileCopyrightText: the stile authors
// SPDX-License-Identifier: Apache-2.0
// etcd's own Go client at the same work: peers_etcd ENDPOINTS WHAT...
//
//	pair TIMES            concurrency.Mutex, Lock and Unlock
//	bare TIMES            a transaction that puts a key, and its deletion
//	handover TIMES MS     from before Unlock until Lock of another process, after a wait of MS, returns
//	crowd PROCESSES MS    processes that lock and unlock one name as fast as they can
//
// A line of JSON: p50_ns, cpu_ns of each, rss_kib; crowd: per_s.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
)

const warmUp = 20

var ctx = context.Background()

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(i int) int {
	n, err := strconv.Atoi(os.Args[i])
	must(err)
	return n
}

func open() *concurrency.Session {
	client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(os.Args[1], ",")})
	must(err)
	session, err := concurrency.NewSession(client, concurrency.WithTTL(10))
	must(err)
	return session
}

func cpu() time.Duration {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func rssKiB() int {
	status, err := os.ReadFile("/proc/self/status")
	must(err)
	for _, line := range strings.Split(string(status), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "VmRSS:" {
			kib, err := strconv.Atoi(fields[1])
			must(err)
			return kib
		}
	}
	return 0
}

func report(what map[string]interface{}) {
	must(json.NewEncoder(os.Stdout).Encode(what))
}

func median(took []time.Duration) time.Duration {
	sort.Slice(took, func(i, j int) bool { return took[i] < took[j] })
	return took[(len(took)-1)/2]
}

func measure(times int, once func() time.Duration) {
	for i := 0; i < warmUp; i++ {
		once()
	}
	before, took := cpu(), make([]time.Duration, times)
	for i := range took {
		took[i] = once()
	}
	used := cpu() - before
	report(map[string]interface{}{"p50_ns": median(took), "rss_kib": rssKiB(),
		"cpu_ns": used / time.Duration(times)})
}

func pair(s *concurrency.Session) time.Duration {
	m, start := concurrency.NewMutex(s, "go-pair"), time.Now()
	must(m.Lock(ctx))
	must(m.Unlock(ctx))
	return time.Since(start)
}

func bare(s *concurrency.Session) time.Duration {
	key, start := fmt.Sprintf("go-bare/%x", s.Lease()), time.Now()
	none := clientv3.Compare(clientv3.CreateRevision(key), "=", 0)
	put := clientv3.OpPut(key, "", clientv3.WithLease(s.Lease()))
	_, err := s.Client().Txn(ctx).If(none).Then(put).Commit()
	must(err)
	_, err = s.Client().Delete(ctx, key)
	must(err)
	return time.Since(start)
}

func handover(holder, waiter *concurrency.Session, parked time.Duration) time.Duration {
	mine, theirs := concurrency.NewMutex(holder, "go-handover"), concurrency.NewMutex(waiter, "go-handover")
	must(mine.Lock(ctx))
	in := make(chan time.Time)
	go func() {
		must(theirs.Lock(ctx))
		in <- time.Now()
	}()
	time.Sleep(parked)
	start := time.Now()
	must(mine.Unlock(ctx))
	end := <-in
	must(theirs.Unlock(ctx))
	return end.Sub(start)
}

// One of the crowd: begins and ends with a line of its input, and reports how often it was served.
func member(s *concurrency.Session) {
	var line string
	stop, served := make(chan bool), 0
	fmt.Println("ready")
	fmt.Scanln(&line)
	go func() {
		fmt.Scanln(&line)
		close(stop)
	}()
	for m := concurrency.NewMutex(s, "go-crowd"); ; served++ {
		select {
		case <-stop:
			fmt.Println(served)
			return
		default:
			must(m.Lock(ctx))
			must(m.Unlock(ctx))
		}
	}
}

type other struct {
	command *exec.Cmd
	say     func()
	hear    func() string
}

func start() other {
	command := exec.Command("/proc/self/exe", os.Args[1], "member")
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	must(err)
	out, err := command.StdoutPipe()
	must(err)
	must(command.Start())
	return other{command, func() { fmt.Fprintln(in, "go") },
		func() (word string) { _, err := fmt.Fscanln(out, &word); must(err); return }}
}

func crowd(processes int, during time.Duration) {
	others, served := make([]other, processes), 0
	for i := range others {
		others[i] = start()
		others[i].hear()
	}
	for _, one := range others {
		one.say()
	}
	time.Sleep(during)
	for _, one := range others {
		one.say()
	}
	for _, one := range others {
		n, err := strconv.Atoi(one.hear())
		must(err)
		served += n
		must(one.command.Wait())
	}
	report(map[string]interface{}{"per_s": float64(served) / during.Seconds()})
}

func main() {
	switch os.Args[2] {
	case "pair":
		s := open()
		measure(number(3), func() time.Duration { return pair(s) })
	case "bare":
		s := open()
		measure(number(3), func() time.Duration { return bare(s) })
	case "handover":
		a, b, parked := open(), open(), time.Duration(number(4))*time.Millisecond
		measure(number(3), func() time.Duration { return handover(a, b, parked) })
	case "member":
		member(open())
	case "crowd":
		crowd(number(3), time.Duration(number(4))*time.Millisecond)
	}
}

/*
 * Leases: which forwarder may begin a delivery of one lane, and write a checkpoint of it.
 *
 * docs/internals/leases.md gives the rules. docs/internals/model.md says what goes wrong without each of them.
 * The database's clock is the true time. Each process has two clocks: its wall clock may be set back, and its
 * monotonic one stops while the machine is suspended. At any time one of the two is right.
 */
module leases

open util/ordering[Time] as time
open util/ordering[Acquire] as acquire

abstract sig Rule {}
one sig RightFromRequest, RightBeforeEachDelivery, ClockUnderTheLock, BothClocks, RepeatIsNoRenewal, TakeOnlyWhatEnded,
	EpochFence, EpochRises, WaitForOwnFlight, DrainBeforeRelease extends Rule {}

// Left.out is the rule that a command leaves out.
one sig Left { out: lone Rule }
pred kept[r: Rule] { r not in Left.out }

sig Time {}
fun over[t: Time]: lone Time { t.next } // when a lease ends that counts from t

sig Forwarder {
	var wall, mono: one Time,
	var waits: lone Acquire,     // the lease for which it asks
	var holds: lone Acquire,     // the lease under which it works
	var untilWall, untilMono: lone Time,
	var flight: set Acquire      // leases under which deliveries are in flight, all of one key
}
var sig Judged in Forwarder {} // a worker has found the lease valid, and waits for the lock

// The database may see a request much later than it was sent, also when its client has given up.
abstract sig Request {
	by: one Forwarder,
	var askedWall, askedMono: lone Time
}
var sig Sent in Request {}
var sig Answered in Request {} // an answer is on its way
sig Acquire extends Request { var epoch: lone Acquire } // an epoch is named by the first lease that has it
sig Checkpoint extends Request { under: one Acquire } { by = under.@by }
var sig Again in Checkpoint {}   // sent again, since it is not known whether it was written
var sig Written in Checkpoint {}

// The row of the cursor. It does not say which lease is the newest.
one sig Row {
	var owner: lone Forwarder,
	var at: lone Acquire,
	var ends: lone Time,
	var newest: lone Acquire
}
var sig Released in Acquire {}
one sig Clock { var now: one Time }

pred init {
	Clock.now = first
	Forwarder.wall = first and Forwarder.mono = first
	no waits and no holds and no untilWall and no untilMono and no flight and no Judged
	no askedWall and no askedMono and no Sent and no Answered and no epoch and no Again and no Written
	no owner and no at and no ends and no newest and no Released
}

// ---- what an event leaves as it is -------------------------------------------------------------------------

pred clocksStay { now' = now and wall' = wall and mono' = mono }
pred leaseStays { holds' = holds and untilWall' = untilWall and untilMono' = untilMono }
pred deliveriesStay { flight' = flight and Judged' = Judged }
pred processesStay { waits' = waits and leaseStays and deliveriesStay }
pred requestsStay { askedWall' = askedWall and askedMono' = askedMono and Sent' = Sent and Again' = Again }
pred rowStays { owner' = owner and at' = at and ends' = ends and newest' = newest and Released' = Released and epoch' = epoch and Written' = Written }
pred answersStay { Answered' = Answered }

// ---- clocks ------------------------------------------------------------------------------------------------

// Time passes everywhere, except for the monotonic clocks of machines that are suspended.
pred tick {
	some Clock.now.next
	now' = Clock->Clock.now.next
	all f: Forwarder | f.wall' = f.wall.next and some f.wall' and (f.mono' = f.mono or f.mono' = f.mono.next)
	processesStay and requestsStay and rowStays and answersStay
}

pred setBack[f: Forwarder] {
	f.wall' in prevs[f.wall]
	now' = now and mono' = mono and (all g: Forwarder - f | g.wall' = g.wall)
	processesStay and requestsStay and rowStays and answersStay
}

pred oneClockIsRight { all f: Forwarder | f.wall = Clock.now or f.mono = Clock.now }

// ---- leases ------------------------------------------------------------------------------------------------

pred send[r: Request] {
	Sent' = Sent + r
	askedWall' = askedWall ++ r->r.by.wall
	askedMono' = askedMono ++ r->r.by.mono
}

pred ask[a: Acquire] {
	a not in Sent and prevs[a] in Sent and no a.by.(holds + waits)
	kept[WaitForOwnFlight] => no a.by.flight
	send[a] and Again' = Again
	waits' = waits + a.by->a and leaseStays and deliveriesStay
	clocksStay and rowStays and answersStay
}

// The database gives a lease. It sees each request once.
pred give[a: Acquire] {
	a in Sent and no a.epoch
	no Row.owner or Row.owner = a.by or lte[Row.ends, Clock.now] or not kept[TakeOnlyWhatEnded]
	some over[Clock.now]
	(not kept[EpochRises] and Row.owner = a.by) => epoch' = epoch + a->Row.at else epoch' = epoch + a->a
	owner' = Row->a.by and at' = Row->a.epoch' and ends' = Row->over[Clock.now] and newest' = Row->a
	Released' = Released and Written' = Written
	Answered' = Answered + a
	clocksStay and processesStay and requestsStay
}

pred get[a: Acquire] {
	a in Answered and a.by.waits = a
	Answered' = Answered - a
	waits' = waits - a.by->a
	holds' = holds + a.by->a
	kept[RightFromRequest]
		=> untilWall' = untilWall + a.by->over[a.askedWall] and untilMono' = untilMono + a.by->over[a.askedMono]
		else untilWall' = untilWall + a.by->over[a.by.wall] and untilMono' = untilMono + a.by->over[a.by.mono]
	deliveriesStay
	clocksStay and requestsStay and rowStays
}

pred holdsNothing[f: Forwarder] {
	waits' = waits - f->Acquire and holds' = holds - f->Acquire
	untilWall' = untilWall - f->Time and untilMono' = untilMono - f->Time
	Judged' = Judged - f and flight' = flight
}

// A forwarder does not wait for an answer any more, or does not work on the lane any more.
pred giveUp[f: Forwarder] {
	some f.(waits + holds)
	holdsNothing[f]
	clocksStay and requestsStay and rowStays and answersStay
}

pred valid[f: Forwarder] {
	some f.holds
	kept[RightBeforeEachDelivery] => lt[f.wall, f.untilWall] and (kept[BothClocks] => lt[f.mono, f.untilMono])
}

// ---- deliveries --------------------------------------------------------------------------------------------

// A worker looks at the clock, and may then have to wait for the lock. What it sees counts only without the rule.
pred judge[f: Forwarder] {
	not kept[ClockUnderTheLock] and valid[f]
	Judged' = Judged + f
	waits' = waits and leaseStays and flight' = flight
	clocksStay and requestsStay and rowStays and answersStay
}

pred begin[f: Forwarder] {
	kept[ClockUnderTheLock] => valid[f] else f in Judged
	f.holds not in f.flight // a key has one head
	flight' = flight + f->f.holds
	Judged' = Judged - f
	waits' = waits and leaseStays
	clocksStay and requestsStay and rowStays and answersStay
}

pred end[f: Forwarder, a: Acquire] {
	a in f.flight
	flight' = flight - f->a and Judged' = Judged
	waits' = waits and leaseStays
	clocksStay and requestsStay and rowStays and answersStay
}

// ---- checkpoints -------------------------------------------------------------------------------------------

pred save[c: Checkpoint] {
	c.by.holds = c.under
	send[c]
	c in Sent => Again' = Again + c else Again' = Again
	Answered' = Answered - c // the client has closed the connection
	clocksStay and processesStay and rowStays
}

// The database writes a checkpoint once, but may see each copy of it. Only the first renews the lease.
pred write[c: Checkpoint] {
	c in Sent
	kept[EpochFence] => Row.owner = c.by and Row.at = c.under.epoch
	some over[Clock.now]
	c in Written => ends' = ends else ends' = Row->over[Clock.now]
	Written' = Written + c
	owner' = owner and at' = at and newest' = newest and Released' = Released and epoch' = epoch
	Answered' = Answered + c
	clocksStay and processesStay and requestsStay
}

pred hear[c: Checkpoint] {
	c in Answered and c.by.holds = c.under
	Answered' = Answered - c
	(c in Again and kept[RepeatIsNoRenewal])
		=> untilWall' = untilWall and untilMono' = untilMono
		else untilWall' = untilWall ++ c.by->over[c.askedWall] and untilMono' = untilMono ++ c.by->over[c.askedMono]
	waits' = waits and holds' = holds and deliveriesStay
	clocksStay and requestsStay and rowStays
}

// ---- release -----------------------------------------------------------------------------------------------

// A forwarder leaves a lane. The answer does not matter, so this is one step.
pred release[f: Forwarder] {
	some f.holds
	kept[DrainBeforeRelease] => f.holds not in f.flight
	(Row.owner = f and Row.at = f.holds.epoch)
		=> no owner' and no ends' and Released' = Released + f.holds
		else owner' = owner and ends' = ends and Released' = Released
	at' = at and newest' = newest and epoch' = epoch and Written' = Written
	holdsNothing[f]
	clocksStay and requestsStay and answersStay
}

pred nothing { clocksStay and processesStay and requestsStay and rowStays and answersStay }

fact events {
	init
	always oneClockIsRight
	always {
		nothing or tick
		or (some f: Forwarder | setBack[f] or giveUp[f] or judge[f] or begin[f] or release[f])
		or (some f: Forwarder, a: Acquire | end[f, a])
		or (some a: Acquire | ask[a] or give[a] or get[a])
		or (some c: Checkpoint | save[c] or write[c] or hear[c])
	}
}

// ---- what must hold ----------------------------------------------------------------------------------------

// No delivery begins once another forwarder has got the lane. The lease may be an older one of the same forwarder:
// a request that comes late replaces it.
pred noDeliveryBeginsWithoutARight { always all f: Forwarder | some f.(flight' - flight) => Row.newest.by = f }

// A process has one delivery of a key in flight.
pred oneOfAKeyIsInFlight { always all f: Forwarder | lone f.flight }

// A checkpoint is written only under the newest lease.
pred nothingIsWrittenUnderAnOldLease { always all c: Checkpoint | c in Written' - Written => c.under = Row.newest }

// Nothing of a lease that was released is in flight.
pred nothingOfAReleasedLaneIsInFlight { always no Released & Forwarder.flight }

check allRules {
	no Left.out => noDeliveryBeginsWithoutARight and oneOfAKeyIsInFlight and nothingIsWrittenUnderAnOldLease
		and nothingOfAReleasedLaneIsInFlight
} for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 0

// ---- each rule left out ------------------------------------------------------------------------------------

run withoutRightFromRequest { Left.out = RightFromRequest and not noDeliveryBeginsWithoutARight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutRightBeforeEachDelivery { Left.out = RightBeforeEachDelivery and not noDeliveryBeginsWithoutARight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutClockUnderTheLock { Left.out = ClockUnderTheLock and not noDeliveryBeginsWithoutARight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutBothClocks { Left.out = BothClocks and not noDeliveryBeginsWithoutARight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutRepeatIsNoRenewal { Left.out = RepeatIsNoRenewal and not noDeliveryBeginsWithoutARight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 14..14 steps expect 1
run withoutTakeOnlyWhatEnded { Left.out = TakeOnlyWhatEnded and not noDeliveryBeginsWithoutARight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutEpochFence { Left.out = EpochFence and not nothingIsWrittenUnderAnOldLease }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutEpochRises { Left.out = EpochRises and not nothingIsWrittenUnderAnOldLease }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutWaitForOwnFlight { Left.out = WaitForOwnFlight and not oneOfAKeyIsInFlight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 12..12 steps expect 1
run withoutDrainBeforeRelease { Left.out = DrainBeforeRelease and not nothingOfAReleasedLaneIsInFlight }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1

// ---- what can happen ---------------------------------------------------------------------------------------

run aDeliveryIsMadeAndWritten { no Left.out and eventually (some f: Forwarder | begin[f] and after eventually some Written) }
	for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1
run aLeaseThatEndedIsTakenByAnother {
	no Left.out and some disj f, g: Forwarder | eventually (begin[f] and eventually begin[g])
} for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 12..12 steps expect 1
run aLeaseIsReleasedAndTakenAtOnce {
	no Left.out and Clock.now = first and (some disj f, g: Forwarder | eventually (release[f] and some Released' and eventually (begin[g] and Clock.now = first)))
} for 2 but 4 Time, 3 Acquire, 1 Checkpoint, 10..10 steps expect 1

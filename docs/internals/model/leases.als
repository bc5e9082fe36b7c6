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

// What happens in a step, and to what.
enum Event { Tick, SetBack, Ask, Give, Get, GiveUp, Judge, Begin, End, Save, Write, Hear, Release, Nothing }
one sig Step { var event: one Event, var who: lone Forwarder, var lease: lone Acquire, var checkpoint: lone Checkpoint }

pred init {
	Clock.now = first
	Forwarder.wall = first and Forwarder.mono = first
	no waits and no holds and no untilWall and no untilMono and no flight and no Judged
	no askedWall and no askedMono and no Sent and no Answered and no epoch and no Again and no Written
	no owner and no at and no ends and no newest and no Released
}

// ---- clocks ------------------------------------------------------------------------------------------------

// Time passes everywhere, except for the monotonic clocks of machines that are suspended.
pred tick {
	some Clock.now.next and now' = Clock->Clock.now.next
	all f: Forwarder | f.wall' = f.wall.next and some f.wall' and (f.mono' = f.mono or f.mono' = f.mono.next)
}

pred setBack[f: Forwarder] {
	some f and f.wall' in prevs[f.wall] and wall' = wall ++ f->f.wall'
}

pred oneClockIsRight { all f: Forwarder | f.wall = Clock.now or f.mono = Clock.now }

// ---- leases ------------------------------------------------------------------------------------------------

pred send[r: Request] {
	some r
	Sent' = Sent + r
	askedWall' = askedWall ++ r->r.by.wall
	askedMono' = askedMono ++ r->r.by.mono
}

pred ask[a: Acquire] {
	a not in Sent and prevs[a] in Sent and no a.by.(holds + waits)
	kept[WaitForOwnFlight] => no a.by.flight
	send[a]
	waits' = waits + a.by->a
}

// The database gives a lease. It sees each request once.
pred give[a: Acquire] {
	some a and a in Sent and no a.epoch
	no Row.owner or Row.owner = a.by or lte[Row.ends, Clock.now] or not kept[TakeOnlyWhatEnded]
	some over[Clock.now]
	(not kept[EpochRises] and Row.owner = a.by) => epoch' = epoch + a->Row.at else epoch' = epoch + a->a
	owner' = Row->a.by and at' = Row->a.epoch' and ends' = Row->over[Clock.now] and newest' = Row->a
	Answered' = Answered + a
}

pred get[a: Acquire] {
	some a and a in Answered and a.by.waits = a
	Answered' = Answered - a
	waits' = waits - a.by->a
	holds' = holds + a.by->a
	kept[RightFromRequest]
		=> untilWall' = untilWall + a.by->over[a.askedWall] and untilMono' = untilMono + a.by->over[a.askedMono]
		else untilWall' = untilWall + a.by->over[a.by.wall] and untilMono' = untilMono + a.by->over[a.by.mono]
}

pred holdsNothing[f: Forwarder] {
	waits' = waits - f->Acquire and holds' = holds - f->Acquire
	untilWall' = untilWall - f->Time and untilMono' = untilMono - f->Time
	Judged' = Judged - f
}

// A forwarder does not wait for an answer any more, or does not work on the lane any more.
pred giveUp[f: Forwarder] { some f.(waits + holds) and holdsNothing[f] }

pred valid[f: Forwarder] {
	some f.holds
	kept[RightBeforeEachDelivery] => lt[f.wall, f.untilWall] and (kept[BothClocks] => lt[f.mono, f.untilMono])
}

// ---- deliveries --------------------------------------------------------------------------------------------

// A worker looks at the clock, and may then have to wait for the lock. What it sees counts only without the rule.
pred judge[f: Forwarder] { not kept[ClockUnderTheLock] and valid[f] and Judged' = Judged + f }

pred begin[f: Forwarder] {
	kept[ClockUnderTheLock] => valid[f] else some f & Judged
	no f.holds & f.flight // a key has one head
	flight' = flight + f->f.holds
	Judged' = Judged - f
}

pred end[f: Forwarder, a: Acquire] { some f->a & flight and flight' = flight - f->a }

// ---- checkpoints -------------------------------------------------------------------------------------------

pred save[c: Checkpoint] {
	c.by.holds = c.under
	send[c]
	Again' = Again + (c & Sent)
	Answered' = Answered - c // the client has closed the connection
}

// The database writes a checkpoint once, but may see each copy of it. Only the first renews the lease.
pred write[c: Checkpoint] {
	some c & Sent
	kept[EpochFence] => Row.owner = c.by and Row.at = c.under.epoch
	some over[Clock.now]
	c in Written => ends' = ends else ends' = Row->over[Clock.now]
	Written' = Written + c
	Answered' = Answered + c
}

pred hear[c: Checkpoint] {
	some c & Answered and c.by.holds = c.under
	Answered' = Answered - c
	(c in Again and kept[RepeatIsNoRenewal])
		=> untilWall' = untilWall and untilMono' = untilMono
		else untilWall' = untilWall ++ c.by->over[c.askedWall] and untilMono' = untilMono ++ c.by->over[c.askedMono]
}

// ---- release -----------------------------------------------------------------------------------------------

// A forwarder leaves a lane. The answer does not matter, so this is one step.
pred release[f: Forwarder] {
	some f.holds
	kept[DrainBeforeRelease] => f.holds not in f.flight
	(Row.owner = f and Row.at = f.holds.epoch)
		=> no owner' and no ends' and Released' = Released + f.holds
		else owner' = owner and ends' = ends and Released' = Released
	holdsNothing[f]
}

// Each event, and what changes only by which events.
pred step {
	let e = Step.event, f = Step.who, a = Step.lease, c = Step.checkpoint {
		some f iff e in SetBack + GiveUp + Judge + Begin + End + Release
		some a iff e in Ask + Give + Get + End
		some c iff e in Save + Write + Hear
		e = Tick => tick
		e = SetBack => setBack[f]
		e = Ask => ask[a]
		e = Give => give[a]
		e = Get => get[a]
		e = GiveUp => giveUp[f]
		e = Judge => judge[f]
		e = Begin => begin[f]
		e = End => end[f, a]
		e = Save => save[c]
		e = Write => write[c]
		e = Hear => hear[c]
		e = Release => release[f]
		e != Tick => now' = now and mono' = mono
		e not in Tick + SetBack => wall' = wall
		e not in Ask + Save => askedWall' = askedWall and askedMono' = askedMono and Sent' = Sent
		e != Save => Again' = Again
		e not in Give + Get + Save + Write + Hear => Answered' = Answered
		e not in Ask + Get + GiveUp + Release => waits' = waits
		e not in Get + GiveUp + Release => holds' = holds
		e not in Get + GiveUp + Release + Hear => untilWall' = untilWall and untilMono' = untilMono
		e not in GiveUp + Release + Judge + Begin => Judged' = Judged
		e not in Begin + End => flight' = flight
		e != Give => epoch' = epoch and at' = at and newest' = newest
		e not in Give + Release => owner' = owner
		e not in Give + Release + Write => ends' = ends
		e != Write => Written' = Written
		e != Release => Released' = Released
	}
}

// Nothing happens only at the end.
fact events { init and always (oneClockIsRight and step and (Step.event = Nothing => Step.event' = Nothing)) }

// ---- what must hold ----------------------------------------------------------------------------------------

// No delivery begins once another forwarder has got the lane. The lease may be an older one of the same forwarder:
// a request that comes late replaces it.
pred noDeliveryBeginsWithoutARight { always (Step.event = Begin => Row.newest.by = Step.who) }

// A process has one delivery of a key in flight.
pred oneOfAKeyIsInFlight { always all f: Forwarder | lone f.flight }

// A checkpoint is written only under the newest lease.
pred nothingIsWrittenUnderAnOldLease { always (Step.event = Write => Step.checkpoint.under = Row.newest) }

// Nothing of a lease that was released is in flight.
pred nothingOfAReleasedLaneIsInFlight { always no Released & Forwarder.flight }

pred safe { noDeliveryBeginsWithoutARight and oneOfAKeyIsInFlight and nothingIsWrittenUnderAnOldLease and nothingOfAReleasedLaneIsInFlight }

check allRules { no Left.out => safe } for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 10..10 steps expect 0
check allRulesOfCheckpoints { no Left.out and only[right + Save + Write + Hear] => safe } for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 13..13 steps expect 0
check largeScope { no Left.out => safe } for 2 but 4 Time, 3 Acquire, 2 Checkpoint, 13..13 steps expect 0

// Only these events happen. A counterexample that needs no others is found sooner.
pred only[events: set Event] { always Step.event in events + Nothing }

fun right: set Event { Tick + Ask + Give + Get + Begin }

// ---- each rule left out ------------------------------------------------------------------------------------

run withoutRightFromRequest { Left.out = RightFromRequest and only[right] and not noDeliveryBeginsWithoutARight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 8..8 steps expect 1
run withoutRightBeforeEachDelivery { Left.out = RightBeforeEachDelivery and only[right] and not noDeliveryBeginsWithoutARight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 8..8 steps expect 1
run withoutClockUnderTheLock { Left.out = ClockUnderTheLock and only[right + Judge] and not noDeliveryBeginsWithoutARight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 9..9 steps expect 1
run withoutBothClocks { Left.out = BothClocks and only[right + SetBack] and not noDeliveryBeginsWithoutARight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 9..9 steps expect 1
run withoutRepeatIsNoRenewal { Left.out = RepeatIsNoRenewal and only[right + Save + Write + Hear]
	and (Step.event = Ask; Step.event = Give; Step.event = Get; Step.event = Save; Step.event = Write; Step.event = Tick)
	and not noDeliveryBeginsWithoutARight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 13..13 steps expect 1
run withoutTakeOnlyWhatEnded { Left.out = TakeOnlyWhatEnded and only[right] and not noDeliveryBeginsWithoutARight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 7..7 steps expect 1
run withoutEpochFence { Left.out = EpochFence and only[right + Save + Write] and not nothingIsWrittenUnderAnOldLease }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 9..9 steps expect 1
run withoutEpochRises { Left.out = EpochRises and only[right + GiveUp + Save + Write]
	and (Step.event = Ask; Step.event = Give; Step.event = Get; Step.event = Save) and not nothingIsWrittenUnderAnOldLease }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 9..9 steps expect 1
run withoutWaitForOwnFlight { Left.out = WaitForOwnFlight and only[right + GiveUp] and not oneOfAKeyIsInFlight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 10..10 steps expect 1
run withoutDrainBeforeRelease { Left.out = DrainBeforeRelease and only[right + Release] and not nothingOfAReleasedLaneIsInFlight }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 7..7 steps expect 1

// ---- what can happen ---------------------------------------------------------------------------------------

run aDeliveryIsMadeAndWritten { no Left.out and eventually (Step.event = End and eventually Step.event = Write) }
	for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 8..8 steps expect 1
run aLeaseThatEndedIsTakenByAnother {
	no Left.out and only[right] and some disj f, g: Forwarder | eventually (Step.event = Begin and Step.who = f and eventually (Step.event = Begin and Step.who = g))
} for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 10..10 steps expect 1
run aLeaseIsReleasedAndTakenAtOnce {
	no Left.out and only[right + Release] and some disj f, g: Forwarder | eventually (Step.event = Release and Step.who = f and some Released' and eventually (Step.event = Begin and Step.who = g and Clock.now = first))
} for 2 but 3 Time, 2 Acquire, 1 Checkpoint, 10..10 steps expect 1

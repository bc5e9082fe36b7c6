/*
 * Reading the log on PostgreSQL: transactions, targets, bases, deltas, watermarks and floors.
 *
 * docs/internals/reading.md gives the rules, and docs/internals/model.md says what goes wrong without each of them. An
 * atom of Tx is a transaction and its id, an atom of Offset is an offset; both are handed out in order. Where there
 * may be no offset, none stands for 0.
 */
module reading

open util/ordering[Tx] as tx
open util/ordering[Offset] as number
open util/ordering[Target] as target

abstract sig Rule {}
one sig IdBeforeOffset, OneNumberAtATime, SnapshotBeforeSequence, BoundBeforeId, WatermarkBeforeProbe, LateRowsAreRead,
	FixedTarget, WholeTarget, OlderTargetReadsNothing, SequenceBeforeLocks, FloorIfStillRunning extends Rule {}

// Left.out is the rule that a command leaves out.
one sig Left { out: lone Rule }
pred kept[r: Rule] { r not in Left.out }

// ---- the server --------------------------------------------------------------------------------------------

sig Tx {}
sig Mark in Tx {} // the transactions of leases and checkpoints, which are watermarks
var sig Taken, Running, Committed in Tx {}
var sig Locking in Tx {} // they have a lock on the log
sig Offset {
	var by: lone Tx,          // the transaction of its row
	var follows: set Offset   // rows that were committed before this one took its offset
}
var sig Reserved in Offset {} // handed out, and not used yet
one sig Sequence { var handed: lone Offset }

fun over: set Tx { Taken - Running }
fun rows[t: set Tx]: set Offset { by.t }
fun to[x: lone Tx]: set Tx { prevs[x] + x }
fun upTo[o: lone Offset]: set Offset { prevs[o] + o }

// ---- what a process knows ----------------------------------------------------------------------------------

one sig Process {
	var seen: lone Offset,           // the sequence, as seen by a probe that has ended
	var bounds: Mark -> lone Offset, // of watermarks that have not ended
	var mark: lone Mark,             // the newest watermark that has ended, and its bound
	var markBound: lone Offset
}

// A probe makes a target, in two parts: a snapshot, and the sequence.
sig Target {
	var shows: set Tx, var top: lone Offset,
	var mark_: lone Mark, var bound: lone Offset,
	var free: set Tx,           // running in it, and without a lock on the log when the locks were read
	var floor: Tx -> lone Offset
}
var sig Begun, Probed in Target {}
fun running[shown: set Tx]: set Tx { prevs[max[shown]] - shown }

// A reader is at a base, or inside of the delta from its base to a target.
one sig Reader {
	var base: set Tx, var baseBound: lone Offset, var floors: Tx -> lone Offset,
	var target_: lone Target, var place: lone Offset,
	var found: set Offset
}
var sig Twice in Offset {} // read twice

// Transactions that were running in the base and had ended in the target.
fun late[t: Target]: set Tx {
	{ x: running[Reader.base] & t.shows | kept[LateRowsAreRead] and t.top not in upTo[x.(Reader.floors)] }
}
fun delta[t: Target]: set Offset {
	{ o: rows[Committed & t.shows] | o.by in late[t] or (o.by not in to[max[Reader.base]] and o not in upTo[Reader.baseBound]) }
}

// ---- what happens ------------------------------------------------------------------------------------------

enum Event { TakeId, TakeOffset, Reserve, Commit, Abort, Unlock, BeginProbe, EndProbe, ReadLocks, RaiseFloors, BeginDelta, ChangeTarget,
	ReadPage, ReadEmpty, Nothing }
one sig Step { var event: one Event, var who: lone Tx, var offset: lone Offset, var target: lone Target }

pred init {
	no by and no follows and no Taken and no Running and no Committed and no Locking and no Reserved and no handed
	no seen and no bounds and no mark and no markBound
	no shows and no top and no mark_ and no bound and no free and no floor and no Begun and no Probed
	no base and no baseBound and no floors and no target_ and no place and no found and no Twice
}

pred takeId[t: Tx] {
	t not in Taken and prevs[t] in Taken
	Taken' = Taken + t and Running' = Running + t
	(t in Mark and kept[BoundBeforeId]) => bounds' = bounds + Process->t->Process.seen else bounds' = bounds
}

fun following: lone Offset { no Sequence.handed => number/first else Sequence.handed.next }

pred takeOffset[t: Tx, o: Offset] {
	t in Running - Mark
	o = following => {
		handed' = Sequence->o and Reserved' = Reserved
		or not kept[OneNumberAtATime] and some o.next and handed' = Sequence->o.next and Reserved' = Reserved + o.next
	} else o in Reserved and handed' = handed and Reserved' = Reserved - o
	by' = by + o->t
	follows' = follows + o->rows[Committed]
	Locking' = Locking + t
}

// Without the rule, a producer has a number before its transaction has an id.
pred reserve[o: Offset] {
	not kept[IdBeforeOffset] and o = following
	handed' = Sequence->o and Reserved' = Reserved + o
}

pred finish[t: Tx] {
	t in Running and Running' = Running - t
	(t in Mark and t not in prevs[Process.mark])
		=> mark' = Process->t and (kept[BoundBeforeId] => markBound' = Process->t.(Process.bounds) else markBound' = Process->Process.seen)
		else mark' = mark and markBound' = markBound
}

// A transaction that ends leaves the snapshots first, and then releases its lock.
pred unlock[t: Tx] { t in Locking - Running and Locking' = Locking - t }

// ---- probes ------------------------------------------------------------------------------------------------

pred knownMark[t: Target] { mark_' = mark_ + t->Process.mark and bound' = bound + t->Process.markBound }

pred beginProbe[t: Target] {
	t not in Begun and prevs[t] in Begun and Begun' = Begun + t
	kept[SnapshotBeforeSequence] => shows' = shows + t->over and top' = top else top' = top + t->Sequence.handed and shows' = shows
	kept[WatermarkBeforeProbe] => knownMark[t] else mark_' = mark_ and bound' = bound
}

pred endProbe[t: Target] {
	t in Begun - Probed and Probed' = Probed + t
	kept[SnapshotBeforeSequence] => top' = top + t->Sequence.handed and shows' = shows else shows' = shows + t->over and top' = top
	kept[WatermarkBeforeProbe] => mark_' = mark_ and bound' = bound else knownMark[t]
	seen' = Process->t.top'
}

// After a probe the locks are read, and then a snapshot that shows which transactions still run.
pred readLocks[t: Target] {
	t in Probed and no t.free and Reader.target_ != t
	some t.free' and t.free' in running[t.shows] - Locking and free' = free + t->t.free'
}
pred raiseFloors[t: Target] {
	some t.free and free' = free - t->Tx
	let x = { y: t.free | kept[FloorIfStillRunning] => y in Running }
		| kept[SequenceBeforeLocks] => floor' = floor + t->x->t.top else floor' = floor + t->x->Sequence.handed
}

// ---- the reader --------------------------------------------------------------------------------------------

pred beginDelta[t: Target] {
	t in Probed and no t.free and no Reader.target_
	kept[OlderTargetReadsNothing] => Reader.base in t.shows
	target_' = Reader->t
	(some Reader.baseBound and all x: late[t] | some x.(Reader.floors))
		=> place' = Reader->min[Reader.baseBound + late[t].(Reader.floors)] else no place'
}

// Without the rule, a page may use a newer target than the one before it.
pred changeTarget[t: Target] {
	not kept[FixedTarget] and some Reader.target_ and t in Probed and Reader.target_.shows in t.shows
	target_' = Reader->t
}

// A page has the rows up to an offset. The one that comes to the target's last offset ends the delta.
pred readPage[o: Offset] {
	some Reader.target_ and o in upTo[Reader.target_.top] - upTo[Reader.place]
	let page = delta[Reader.target_] & upTo[o] - upTo[Reader.place] {
		found' = found + Reader->page
		Twice' = Twice + (page & Reader.found)
	}
	(o = Reader.target_.top or not kept[WholeTarget])
		=> endDelta[Reader.target_]
		else base' = base and baseBound' = baseBound and floors' = floors and target_' = target_ and place' = Reader->o
}
pred readEmpty {
	some Reader.target_ and Reader.target_.top in upTo[Reader.place]
	endDelta[Reader.target_]
}
pred endDelta[t: Target] {
	base' = Reader->t.shows and no target_' and no place'
	baseBound' = Reader->max[Reader.baseBound + t.bound]
	floors' = Reader->{ x: running[t.shows], o: Offset |
		o = max[{ p: Offset | x in running[Reader.base] and p = x.(Reader.floors) or x not in running[Reader.base] and p = Reader.baseBound
			or p = t.bound and x not in to[t.mark_] or p = x.(t.floor) }] }
}

pred step {
	let e = Step.event, x = Step.who, o = Step.offset, t = Step.target {
		some x iff e in TakeId + TakeOffset + Commit + Abort + Unlock
		some o iff e in TakeOffset + Reserve + ReadPage
		some t iff e in BeginProbe + EndProbe + ReadLocks + RaiseFloors + BeginDelta + ChangeTarget
		e = TakeId => takeId[x]
		e = TakeOffset => takeOffset[x, o]
		e = Reserve => reserve[o]
		e in Commit + Abort => finish[x]
		e = Unlock => unlock[x]
		e = BeginProbe => beginProbe[t]
		e = EndProbe => endProbe[t]
		e = ReadLocks => readLocks[t]
		e = RaiseFloors => raiseFloors[t]
		e = BeginDelta => beginDelta[t]
		e = ChangeTarget => changeTarget[t]
		e = ReadPage => readPage[o]
		e = ReadEmpty => readEmpty
		e != TakeId => Taken' = Taken and bounds' = bounds
		e not in TakeId + Commit + Abort => Running' = Running
		e = Commit => Committed' = Committed + x else Committed' = Committed
		e != TakeOffset => by' = by and follows' = follows
		e not in TakeOffset + Unlock => Locking' = Locking
		e not in TakeOffset + Reserve => handed' = handed and Reserved' = Reserved
		e not in Commit + Abort => mark' = mark and markBound' = markBound
		e != BeginProbe => Begun' = Begun
		e != EndProbe => Probed' = Probed and seen' = seen
		e not in BeginProbe + EndProbe => shows' = shows and top' = top and mark_' = mark_ and bound' = bound
		e not in ReadLocks + RaiseFloors => free' = free
		e != RaiseFloors => floor' = floor
		e not in BeginDelta + ChangeTarget + ReadPage + ReadEmpty => target_' = target_
		e not in BeginDelta + ReadPage + ReadEmpty => place' = place
		e not in ReadPage + ReadEmpty => base' = base and baseBound' = baseBound and floors' = floors
		e != ReadPage => found' = found and Twice' = Twice
	}
}

// Nothing happens only at the end.
fact events { init and always (step and (Step.event = Nothing => Step.event' = Nothing)) }

// ---- what must hold ----------------------------------------------------------------------------------------

// A reader at a base has read each committed row that the base shows.
pred passesNothing { always (no Reader.target_ => rows[Committed & Reader.base] in Reader.found) }

pred readsNothingTwice { always no Twice }

// What was committed before a row took its offset is read before that row, or in the same page.
pred readsInOrder { always (Reader.found).follows in Reader.found }

pred safe { passesNothing and readsNothingTwice and readsInOrder }

check allRules { no Left.out => safe } for 2 but 12..12 steps expect 0
check allRulesOfWatermarks { no Left.out and only[reads] => safe } for 2 but 1 Offset, 3 Target, 16..16 steps expect 0
check largeScope { no Left.out => safe } for 3 but 2 Offset, 18..18 steps expect 0

// Only these events happen. A counterexample that needs no others is found sooner.
pred only[events: set Event] { always Step.event in events + Nothing }

fun reads: set Event { TakeId + TakeOffset + Commit + BeginProbe + EndProbe + BeginDelta + ReadPage + ReadEmpty }

// ---- each rule left out ------------------------------------------------------------------------------------

run withoutIdBeforeOffset { Left.out = IdBeforeOffset and only[reads + Reserve]
	and (Step.event = Reserve; Step.event = BeginProbe; Step.event = EndProbe; Step.event = TakeId; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe)
	and not passesNothing }
	for 2 but 1 Offset, 3 Target, 17..17 steps expect 1
run withoutOneNumberAtATime { Left.out = OneNumberAtATime and only[reads]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = BeginProbe; Step.event = EndProbe; Step.event = TakeId; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe;
	Step.event = BeginDelta; Step.event = ReadPage)
	and not passesNothing }
	for 3 but 2 Offset, 3 Target, 18..18 steps expect 1
run withoutSnapshotBeforeSequence { Left.out = SnapshotBeforeSequence and only[reads] and not passesNothing }
	for 1 but 8..8 steps expect 1
run withoutBoundBeforeId { Left.out = BoundBeforeId and only[reads]
	and (Step.event = TakeId; Step.event = TakeId; Step.event = TakeOffset; Step.event = BeginProbe; Step.event = EndProbe; Step.event = Commit)
	and not passesNothing }
	for 2 but 1 Offset, 3 Target, 16..16 steps expect 1
run withoutWatermarkBeforeProbe { Left.out = WatermarkBeforeProbe and only[reads]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = BeginProbe; Step.event = EndProbe; Step.event = TakeId; Step.event = BeginProbe; Step.event = Commit; Step.event = EndProbe)
	and not passesNothing }
	for 2 but 1 Offset, 3 Target, 16..16 steps expect 1
run withoutLateRowsAreRead { Left.out = LateRowsAreRead and only[reads]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = TakeId; Step.event = Commit)
	and not passesNothing }
	for 2 but 1 Offset, 14..14 steps expect 1
run withoutFixedTarget { Left.out = FixedTarget and only[reads + ChangeTarget]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = TakeId; Step.event = TakeOffset; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe)
	and not passesNothing }
	for 2 but 15..15 steps expect 1
run withoutWholeTarget { Left.out = WholeTarget and only[reads] and not passesNothing }
	for 1 but 2 Offset, 9..9 steps expect 1
run withoutOlderTargetReadsNothing { Left.out = OlderTargetReadsNothing and only[reads]
	and (Step.event = BeginProbe; Step.event = EndProbe; Step.event = TakeId; Step.event = TakeOffset; Step.event = Commit)
	and not readsNothingTwice }
	for 1 but 2 Target, 14..14 steps expect 1
run withoutSequenceBeforeLocks { Left.out = SequenceBeforeLocks and only[reads + ReadLocks + RaiseFloors]
	and (Step.event = TakeId; Step.event = TakeId; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe; Step.event = ReadLocks)
	and not passesNothing }
	for 2 but 1 Offset, 16..16 steps expect 1
run withoutFloorIfStillRunning { Left.out = FloorIfStillRunning and only[reads + Unlock + ReadLocks + RaiseFloors]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = TakeId; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe)
	and not passesNothing }
	for 2 but 1 Offset, 17..17 steps expect 1

// ---- what can happen ---------------------------------------------------------------------------------------

run aLateRowIsRead {
	no Left.out and only[reads]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = TakeId; Step.event = Commit)
	and eventually (Step.event = BeginDelta and some rows[late[Step.target]] and eventually (Step.event = ReadPage and some found' - found))
} for 2 but 1 Offset, 14..14 steps expect 1
run aWatermarkBoundsADelta { no Left.out and only[reads]
	and (Step.event = TakeId; Step.event = TakeOffset; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe; Step.event = TakeId; Step.event = Commit; Step.event = BeginProbe; Step.event = EndProbe)
	and eventually (Step.event = BeginDelta and some Reader.baseBound and some delta[Step.target]) }
	for 3 but 2 Offset, 3 Target, 18..18 steps expect 1

/* A sink that is fenced by its ledger row: can an incarnation that has been overtaken change a row?
 *
 * There are N records of one key. row[0] is the count of the key, N in the end; row[1] is a row that only record 2
 * brings. Every start of the job appends an entry to the store's log, put-if-absent, so that numbers only grow, and
 * takes the slot as its incarnation; a checkpoint takes the next slot, and who finds it taken has been overtaken. All
 * but the last to start may crash. A write is a database transaction: lock the ledger row, compare the incarnation,
 * write, commit. A paused writer keeps the lock; a dead one's transaction is rolled back or, its COMMIT being under
 * way, committed.
 *
 * EAGER is the default here: rows are written as they come, before their checkpoint.
 *   -DATCOMMIT  rows are written after their checkpoint, with the ledger, as the default sink does
 *   -DTIMING    whether record 2 is late depends on how splits interleave: each replay decides it anew
 *   -DCOPIED    the last incarnation runs on a copy of the state directory, so that two may have one number
 * The flags under X take a rule away, and spin must then find out.
 */
#ifndef N
#define N 3
#endif
#ifndef INCS
#define INCS 3
#endif

/* The store; the second one is the copy. */
byte slots[2];                          /* the last slot taken */
byte c_at[2], c_row[2], c_slot[2];      /* the newest checkpoint: position, whether record 2 counted, its slot */

/* The database. */
byte row[2], fence, lock, ledger;       /* rows; incarnation and checkpoint in the ledger row; who has it locked */
byte rightful;                          /* who fenced last: only this one may write. The model looks, no worker does */

byte started, ended, final_row; bool finished;

#define MAY_CRASH (last == 0)

/* One transaction after which the rows hold count and extra. */
inline write(count, extra, slot_) {
#ifdef PEEK                             /* X: compares before the transaction, not inside it */
  atomic { if :: fence != inc -> goto out :: else fi };
  atomic { lock == 0 -> lock = me };
#else
  atomic { lock == 0 -> lock = me };
#ifndef NOFENCE                         /* X: doesn't compare at all */
  atomic { if :: fence != inc -> lock = 0; goto out :: else fi };
#endif
#endif
  if :: MAY_CRASH -> lock = 0; goto out :: true fi;      /* a crash: rolled back */
  atomic {
    assert(rightful == me);
#ifdef ATCOMMIT
    if :: ledger == slot_ -> skip                        /* this checkpoint is there already */
       :: else -> row[0] = count; if :: extra -> row[1] = extra :: else fi; ledger = slot_
    fi;
#else
    row[0] = count; if :: extra -> row[1] = extra :: else fi;
#endif
    lock = 0 };
  if :: MAY_CRASH -> goto out :: true fi                 /* a crash: committed, the answer is lost */
}

proctype Incarnation(byte me; byte s) { byte inc, slot, at, extra, dirty, saved, last;
  atomic { started++; last = (started == INCS); slots[s]++; slot = slots[s]; inc = slot }   /* start entry */
  atomic { lock == 0 ->                                  /* fence the sink; this waits for the lock */
#ifdef EQUAL                            /* X: an equal incarnation is taken for one's own */
    if :: fence <= inc -> fence = inc; rightful = me :: else -> goto out fi }
#else
    if :: fence < inc -> fence = inc; rightful = me :: else -> goto out fi }
#endif
  atomic { if :: slots[s] != slot -> goto out            /* another start: give up */
              :: else -> at = c_at[s]; extra = c_row[s]; saved = at fi }                    /* restore */
#ifdef ATCOMMIT
  if :: c_slot[s] -> write(at, extra, c_slot[s]) :: else fi;                                /* roll forward */
#endif
  do
  :: at < N -> atomic {                                  /* a record */
       at++; dirty = 1;
       if :: at == 2 -> extra = 1
#ifdef TIMING
          :: at == 2 -> extra = 0
#endif
          :: at != 2
       fi }
#ifndef ATCOMMIT
  :: dirty -> write(at, extra, 0); dirty = 0
  :: !dirty && at > saved ->                             /* all is confirmed: the checkpoint */
#else
  :: at > saved ->
#endif
       atomic {
         if :: slots[s] != slot -> goto out
            :: else -> slots[s]++; slot = slots[s]; c_at[s] = at; c_row[s] = extra; c_slot[s] = slot; saved = at
         fi };
#ifdef ATCOMMIT
       write(at, extra, slot); dirty = 0
#endif
  :: MAY_CRASH -> goto out
  :: saved == N && !dirty -> break
  od;
  atomic { if :: last -> finished = true; final_row = extra :: else fi };
out: ended++
}

init { byte j;
  atomic {
#ifdef COPIED
    for (j : 1 .. INCS) { run Incarnation(j, (j == INCS)) }
#else
    for (j : 1 .. INCS) { run Incarnation(j, 0) }
#endif
  }
  (ended == INCS);
#ifndef COPIED                          /* a copy may be refused, so there only the writes are checked */
  assert(finished);
  assert(row[0] == N && row[1] == final_row)             /* the table is what the surviving history says */
#endif
}

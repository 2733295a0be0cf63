/* A job whose decider is a log with transactions, such as Kafka: nothing there compares a ledger when a transaction
 * commits. Are two producers in turn, which can't be fenced in one step, enough?
 *
 * INCS incarnations start in any order and overlap in any way; all but the last may crash at any step. There are N
 * input records, each with one effect. A state is the prefix of the input that it covers. Epoch n's transaction belongs
 * to producer n mod 2. Ending a transaction is a request in flight: the broker may apply it after its sender is gone.
 * It decides the epoch, and readers see that later, when the markers are written. Taking a producer over (fencing)
 * waits for markers that are due. Once, a broker that is killed may lose them: then only an operator can write them.
 *
 * Without a flag the model must hold, and so it must with NOSLOT or with ANYPRODUCER: either rule is enough. A flag
 * takes one rule away, and spin must then find out.
 */
#ifndef N
#define N 2
#endif
#ifndef INCS
#define INCS 3
#endif
#define CHECKPOINTS (N*INCS+6)

/* The log. Checkpoint 0 is genesis: empty state, committed. */
byte first[CHECKPOINTS], end_[CHECKPOINTS]; /* its epoch holds the records first .. end_-1 */
byte epoch[CHECKPOINTS];
byte next = 1;                              /* the number that the next checkpoint gets */
byte started;                               /* the newest start: older incarnations can enter nothing any more */

/* The broker: who has a producer, the transaction of it whose markers are due, one whose markers are lost, and the
 * checkpoint that the last visible control record names. */
byte owner[2], due[2], hangs[2], last;
bool lost;                                  /* it happens once */
byte seen[N];

/* Requests to end a transaction in flight, by incarnation and producer (0: none), and their answers. */
#define DONE    1
#define REFUSED 2
typedef Calls { byte sent[2]; byte answer[2] }
Calls call[INCS+1];

byte ended;        /* incarnations that are over */
bool finished;     /* the last one came to the end of the input */

inline reveal(c) {
  for (r : first[c] .. end_[c]-1) { seen[r]++; assert(seen[r] == 1) }
  last = c; r = 0
}

proctype Broker() { byte i, p, r;
end: do
  :: atomic {
       select(i : 1 .. INCS); select(p : 0 .. 1);
       if :: call[i].sent[p] -> skip :: else -> goto end fi;
       if
       :: owner[p] == i && !due[p] && !hangs[p] -> due[p] = call[i].sent[p]; call[i].answer[p] = DONE
       :: else -> call[i].answer[p] = REFUSED
       fi;
       call[i].sent[p] = 0 }
  :: atomic { due[0] -> reveal(due[0]); due[0] = 0 }
  :: atomic { due[1] -> reveal(due[1]); due[1] = 0 }
  :: atomic { due[0] && !lost -> lost = true; hangs[0] = due[0]; due[0] = 0 }
  :: atomic { due[1] && !lost -> lost = true; hangs[1] = due[1]; due[1] = 0 }
  :: atomic { hangs[0] -> reveal(hangs[0]); hangs[0] = 0 }   /* the operator, by what the coordinator recorded */
  :: atomic { hangs[1] -> reveal(hangs[1]); hangs[1] = 0 }
  od
}

#define TAKE(p) atomic { !due[p] -> owner[p] = me }

/* A crash; what was sent stays in flight. */
#define CRASH if :: me < INCS -> goto out :: true fi

proctype Incarnation(byte me) { byte base, c, k, p;
again:
  atomic { if :: started <= me -> started = me :: else -> goto out fi }
#ifdef READFIRST            /* X: asks before it fences */
  base = last;
#endif
#ifdef ONLYA                /* X: leaves the second producer alone, and takes it when it first needs it */
  TAKE(0);
#else
  if                        /* one after the other, in any order */
  :: TAKE(0); CRASH; TAKE(1)
  :: TAKE(1); CRASH; TAKE(0)
  fi;
#endif
  CRASH;
#ifndef BLIND               /* X: takes no notice of transactions that hang */
  (!hangs[0] && !hangs[1]);
#endif
#ifndef READFIRST
  base = last;
#endif
  do
  :: end_[base] == N -> finished = finished || me == INCS; goto out
  :: end_[base] < N ->
       CRASH;
       atomic {             /* flush, checkpoint entry */
#ifndef NOSLOT              /* rule 1: an entry takes exactly the next slot */
         if :: started == me -> skip :: else -> goto out fi;
#endif
         select(k : end_[base]+1 .. N);
         c = next; next++;
         first[c] = end_[base]; end_[c] = k; epoch[c] = epoch[base] + 1; k = 0;
#ifdef ANYPRODUCER          /* rule 2: the producer follows from the epoch's number */
         p = (epoch[c] + me) % 2
#else
         p = epoch[c] % 2
#endif
       }
       CRASH;
#ifdef ONLYA
       if :: p == 1 && owner[1] != me -> TAKE(1) :: else fi;
#endif
       atomic { call[me].sent[p] = c };
       call[me].answer[p] > 0;
       if
       :: atomic { call[me].answer[p] == DONE -> call[me].answer[p] = 0 }
       :: atomic { call[me].answer[p] == REFUSED -> call[me].answer[p] = 0 };
          if :: me == INCS -> base = 0; c = 0; p = 0; goto again :: else -> goto out fi
       fi;
       last == c || hangs[p];                            /* until it is visible, or hangs */
       if
       :: last == c -> base = c
       :: else -> if :: me == INCS -> base = 0; c = 0; p = 0; goto again :: else -> goto out fi
       fi
  od;
out: ended++
}

init { byte r;
  atomic { for (r : 1 .. INCS) { run Incarnation(r) }; run Broker() }
  (ended == INCS);
  assert(finished);                                      /* the last incarnation always gets to the end, */
  for (r : 0 .. N-1) { assert(seen[r] == 1) }            /* and each effect is there once */
}

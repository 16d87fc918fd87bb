/* ---- What a turn counts ------------------------------------------------------------------------------------------
 *
 * The rest of the model is written by hand from docs/rules.md, and not from the code that implements the rules. Two
 * independent readings of a rule rarely share a mistake.
 *
 * The names are those of the guards. Texts, money, seconds and ids are left out, because no guard reads them. The calls
 * of a batch are interchangeable, so the model only counts them.
 */

/* The limits, chosen once. Tokens, money, time and the synthesis need no limit here. A random choice covers both cases:
 * a limit that is off is never spent, and a missing synthesis never succeeds. */
byte allowance, budget, max_retries, max_compactions;
bool hooked;                   /* hooks, guardrails, a typed answer and a compaction act */
bool budgeted, doom_asks;      /* without a budget, calls are not counted */

mtype state = CHECK;
byte steps, calls, nudges_left, pauses_left, retries_left, waiting;
byte output_retries_left, compactions_left;
byte idle;                     /* 1: no call ran in too many steps, whatever their limit is */
byte idle_limit;
bool final;                    /* a call of the open batch gave the answer */
bool tokens_spent, cost_spent, time_spent, doom, carried_doom, second_try;
mtype reason;                  /* the reason that a conclusion carries, then the reason of the end */

/* The event and its values, cleared once its row is taken. */
mtype event, given;            /* given: the reason in the event: of a cause or of an abort */
byte made, runs, used;         /* calls asked for; those of them that may run; calls that a sub-agent ran */
bool filtered, truncated, lends, may_pass, no_text, synthesized, doom_asked, go_on;
bool review, refused, overflow, answers;   /* answers: the reply has a typed answer */
mtype before;                  /* the state in which the event came */
byte row;                      /* the row that was taken; 0: none accepts the event */

/* The open batch: calls without a result. A call is `counted` once it has taken its place in the budget. The typed
 * answer is a call that never runs. */
byte ready, ready_counted, running, asking, asking_counted;
bool answering;
bool had_calls, was_cut;       /* what a review needs of its reply */
byte lent;                     /* places that the batch's sub-agents may use between them */

/* The person's message, until the driver reads it. */
mtype = { grants, denies, goes_on, stops, leaves, supersedes };
mtype inbox;

/* Only the claims read these. */
byte model_calls;
bool unaccepted, overdrawn, overspent, began_on_spent, asked_too_often, went_on;

#define over (state == FINISHED || state == SYNTHESIS_DONE || state == CAP_HIT || \
              state == DOOM_LOOP || state == ABORTED || state == FAILED)
#define calls_the_model (state == STREAM || state == COMPACT || state == CONCLUDE || state == TEXT_ONLY)
#define works (calls_the_model || state == REVIEW || state == TOOL_EXEC)
#define open_calls (ready + ready_counted + running + asking + asking_counted + answering)
#define most_model_calls ((allowance + 1) * (1 + max_retries) + 2 * max_compactions)
#define a_budget_is_spent (budgeted && calls >= budget || tokens_spent || cost_spent || time_spent || idle >= idle_limit)
#define widest (hooked -> HOOKED_BATCH : WIDEST_BATCH)
#define places_left (budgeted -> budget - calls : widest)

/* Taking from an empty counter sets a flag and changes no counter, because a byte that wraps around would hide it. */
inline take_one(left) {
  if
  :: left > 0 -> left--
  :: else -> overdrawn = true
  fi
}

inline perhaps(flag) {
  if
  :: flag = false
  :: flag = true
  fi
}

/* A turn with hooks, reviews and compactions has smaller limits, because their product would have millions of states. */
inline choose_the_limits() {
  perhaps(hooked);
  idle_limit = 1;
  select (allowance : 0 .. (hooked -> HOOKED_ALLOWANCE : MAX_ALLOWANCE));
  if
  :: budgeted = true; select (budget : 0 .. (hooked -> HOOKED_BUDGET : MAX_BUDGET))
  :: budgeted = false
  fi;
  select (max_retries : 0 .. MAX_RETRIES);
  select (pauses_left : 0 .. (hooked -> HOOKED_PAUSES : MAX_PAUSES));
  select (nudges_left : 0 .. MAX_NUDGES);
  select (output_retries_left : 0 .. (hooked -> MAX_OUTPUT_RETRIES : 0));
  select (max_compactions : 0 .. (hooked -> MAX_COMPACTIONS : 0));
  compactions_left = max_compactions;
  perhaps(doom_asks);
  printf("limits %d %d %d %d %d %d %d", allowance, budgeted, budget, max_retries, pauses_left, nudges_left, doom_asks);
  printf(" %d %d\n", output_retries_left, max_compactions)
}

/* ---- What can happen -------------------------------------------------------------------------------------------- */

/* docs/rules.md#retries: a connection error, a timeout, an overload, an empty reply and a crash may pass. */
inline an_attempt_fails() {
  event = attempt_failed;
  if
  :: may_pass = true;
     if
     :: given = why_model_error
     :: given = why_empty_reply
     :: given = why_crashed
     fi
  :: may_pass = false;
     if
     :: given = why_model_error
     :: given = why_context_overflow; overflow = true
     :: given = why_content_filter
     fi
  fi
}

/* A stop ends the open sub-agents and counts what each of them used, at most its lease (docs/rules.md#sub-agents). */
inline the_sub_agents_are_counted() {
  if
  :: lent > 0 -> select (used : 0 .. lent); calls = calls + used; lent = lent - used
  :: else
  fi
}

/* An abort or a bug may come whenever the driver works. It is a choice of the driver and not a process of its own:
 * fairness would force such a process to abort every turn in the end, and prove nothing. */
inline the_driver_is_stopped() {
  if
  :: event = abort; given = why_aborted
  :: event = fail
  fi;
  the_sub_agents_are_counted()
}

/* Places are reserved when the reply arrives: valid calls get as many as the budget has left (docs/rules.md#budgets).
 * Sub-agents lease what the batch leaves (docs/rules.md#sub-agents), and share it at random. */
inline the_model_replies() {
  event = replied;
  select (made : 0 .. widest);
  perhaps(filtered);
  perhaps(truncated);
  if
  :: state == STREAM ->
     if
     :: hooked -> perhaps(review)
     :: else
     fi;
     if
     :: review && made > 0 -> perhaps(answers)                          /* one of the calls is the typed answer */
     :: else
     fi;
     select (runs : 0 .. (made - answers < places_left -> made - answers : places_left));
     if
     :: runs > 0 && budgeted -> perhaps(lends)
     :: else
     fi
  :: else                                           /* tools are disabled: calls are refused */
  fi
}

inline the_model_is_called() {
  if
  :: state == CONCLUDE -> event = concluded; perhaps(no_text)          /* empty, or only calls */
  :: state != CONCLUDE -> the_model_replies()
  :: state != CONCLUDE -> event = expire            /* a conclusion that times out is a failed attempt */
  :: state == STREAM && compactions_left > 0 -> event = oversized
  :: hooked -> event = tripped
  :: an_attempt_fails()
  :: the_driver_is_stopped()
  fi
}

/* docs/rules.md#compaction: what the summary used may spend a budget. */
inline the_summary_is_made() {
  if
  :: event = compacted;
     if :: tokens_spent = true :: skip fi;
     if :: cost_spent = true :: skip fi
  :: event = expire
  :: an_attempt_fails()
  :: the_driver_is_stopped()
  fi
}

/* docs/rules.md#reviews: hooks, the output type and guardrails check a reply, of which nothing has run. */
inline the_reply_is_reviewed() {
  if
  :: event = reviewed; made = had_calls; truncated = was_cut; perhaps(refused)
  :: event = tripped
  :: event = expire
  :: an_attempt_fails()
  :: the_driver_is_stopped()
  fi
}

/* A call that needs a person is settled at once when no pause is left (docs/rules.md#approvals). */
inline a_person_is_wanted(whose) {
  if
  :: pauses_left > 0 -> whose++; waiting++
  :: else
  fi
}

/* Calls run in parallel, in any order. A settled call is no longer open. */
inline the_calls_run() {
  if
  :: ready > 0 -> ready--;
     if
     :: running++; calls = calls + budgeted                /* counts when it starts */
     :: a_person_is_wanted(asking)
     :: skip                                               /* settled before it could start: an error, a refusal */
     fi
  :: ready_counted > 0 -> ready_counted--;
     if
     :: running++                                          /* it counts only once */
     :: a_person_is_wanted(asking_counted)
     :: skip
     fi
  :: running > 0 -> running--;
     if
     :: skip                                               /* its result; after a crash: an unknown outcome */
     :: hooked -> final = true                             /* its result is the turn's answer */
     :: lent > 0 -> select (used : 1 .. lent); calls = calls + used; lent = lent - used
     :: a_person_is_wanted(asking_counted)                 /* after a crash, or for a sub-agent: it asks */
     :: retries_left > 0 -> retries_left--; running++      /* after a crash: it is run again; so are the others that
                                                              the crash interrupted, which changes no count */
     fi
  :: ready + ready_counted + running == 0 && waiting > 0 -> event = settled
  :: ready + ready_counted + running == 0 && waiting == 0 ->
     if
     :: event = settled
     :: !final -> event = settled; synthesized = true
     :: !final && retries_left > 0 -> retries_left--       /* the synthesis failed, and is tried again */
     fi
  :: hooked -> event = tripped; the_sub_agents_are_counted()
  :: event = expire; the_sub_agents_are_counted()
  :: the_driver_is_stopped()
  fi
}

/* The end of a step chooses what CHECK reads: whether the detector found a loop, whether too many steps ran no call, and
 * which budgets are spent. A claim that holds for any detector holds for ours, and a spent budget stays spent. A choice when the reply arrives would
 * give sixteen times as many states, and nothing reads the values before CHECK. */
inline the_step_ends() {
  event = proceed;
  perhaps(doom);
  if :: idle = 1 :: skip fi;
  if :: tokens_spent = true :: skip fi;
  if :: cost_spent = true :: skip fi;
  if :: time_spent = true :: skip fi
}

/* docs/rules.md#approvals. An expired interrupt counts as a rejection, or as a stop in a doom loop. */
inline the_driver_takes_the_answer() {
  if
  :: inbox == leaves -> event = abort; given = why_aborted; the_sub_agents_are_counted()
  :: inbox == supersedes -> event = abort; given = why_superseded; the_sub_agents_are_counted()
  :: inbox != leaves && inbox != supersedes -> event = answered; waiting--;
     if
     :: inbox == goes_on -> doom_asked = true; go_on = true
     :: inbox == stops -> doom_asked = true
     :: inbox == grants && asking > 0 -> asking--; ready++
     :: inbox == grants && asking_counted > 0 -> asking_counted--; ready_counted++
     :: inbox == denies && asking > 0 -> asking--
     :: inbox == denies && asking_counted > 0 -> asking_counted--
     fi
  fi;
  inbox = 0
}

/* After the end, anything may still arrive. */
inline something_comes_late() {
  if
  :: event = proceed
  :: event = replied; select (made : 0 .. 1); perhaps(filtered); perhaps(truncated)
  :: an_attempt_fails()
  :: event = settled; perhaps(synthesized)
  :: event = answered; perhaps(doom_asked); perhaps(go_on)
  :: event = concluded; perhaps(no_text)
  :: event = reviewed; perhaps(refused)
  :: event = oversized
  :: event = compacted
  :: event = tripped
  :: event = expire
  :: event = abort; given = why_aborted
  :: event = fail
  fi
}

/* ---- What follows from a row ------------------------------------------------------------------------------------ */

/* `before` and `state` are the ends of the row, `event` is what it was taken for. */
inline the_row_is_followed() {
  overspent = overspent || calls > budget;           /* set here, because the end of a turn clears `calls` */
  if
  :: event == attempt_failed && state == before -> take_one(retries_left)
  :: event == concluded && state == before ->                       /* the second request costs a retry */
     asked_too_often = asked_too_often || second_try;
     take_one(retries_left); second_try = true
  :: event == replied && (state == TOOL_EXEC || state == REVIEW) ->
     ready = runs; final = false;
     lent = (lends -> budget - calls - runs : 0);
     if
     :: state == REVIEW -> answering = answers; had_calls = made > 0; was_cut = truncated
     :: else
     fi
  :: event == reviewed ->
     final = answering && state == TOOL_EXEC;
     answering = false; had_calls = false; was_cut = false;
     if
     :: state == CONTINUE -> take_one(output_retries_left); ready = 0     /* every call is refused */
     :: else
     fi
  :: before == STREAM && state == COMPACT -> take_one(compactions_left)
  :: event == answered && doom_asked && go_on -> doom = false       /* the detector forgets the rounds so far */
  :: else
  fi;
  went_on = went_on || (final && (before == CHECK && state == STREAM || state == CONCLUDE));
  if
  :: before == CHECK && state == STREAM ->                          /* the only place where a step is counted */
     steps = steps + (steps <= allowance);                          /* one too many is enough for the claim */
     began_on_spent = began_on_spent || a_budget_is_spent;
     if
     :: doom -> take_one(nudges_left); doom = false                 /* a nudge; the next round decides again */
     :: else
     fi
  :: before != PAUSED && state == PAUSED ->
     take_one(pauses_left);
     waiting = waiting + (before == CHECK)                          /* the question of a doom loop */
  :: state == CONCLUDE || over ->                                   /* every open call gets a result */
     ready = 0; ready_counted = 0; running = 0; asking = 0; asking_counted = 0; lent = 0; waiting = 0;
     answering = false; had_calls = false; was_cut = false; final = false;
     carried_doom = (state == CONCLUDE && reason == why_doom_loop); idle = 0
  :: state == CONTINUE -> lent = 0                                  /* the unused rest returns */
  :: else
  fi;
  if                                /* retries belong to a phase, and a compaction to that of its model call */
  :: state == COMPACT || before == COMPACT && state == STREAM
  :: before != state && works && state != COMPACT && !(before == COMPACT && state == STREAM) -> retries_left = max_retries
  :: before != state && !works -> retries_left = 0
  :: else
  fi;
  if
  :: calls_the_model && model_calls <= most_model_calls -> model_calls++
  :: else
  fi;
  if                                         /* Nothing reads the counters of a turn that has ended. Clearing them */
  :: over ->                                 /* merges thousands of states into one.                               */
     steps = 0; calls = 0; nudges_left = 0; pauses_left = 0; model_calls = 0; doom = false;
     tokens_spent = false; cost_spent = false; time_spent = false; second_try = false;
     output_retries_left = 0; compactions_left = 0; max_compactions = 0; hooked = false;
     allowance = 0; budgeted = false; budget = 0; max_retries = 0; doom_asks = false
  :: else
  fi
}

inline the_event_is_forgotten() {
  event = 0; given = 0; before = 0; row = 0; made = 0; runs = 0; used = 0;
  filtered = false; truncated = false; lends = false; may_pass = false; no_text = false;
  synthesized = false; doom_asked = false; go_on = false;
  review = false; refused = false; overflow = false; answers = false
}

/* ---- Who acts --------------------------------------------------------------------------------------------------- */

/* The driver, the model and the tools. Each round is one event and, if it is an event of the chart, its row. */
active proctype driver() {
  atomic { choose_the_limits() };
  do
  :: atomic {
       if
       :: state == CHECK -> event = proceed
       :: state == CONTINUE -> the_step_ends()
       :: state == COMPACT -> the_summary_is_made()
       :: state == REVIEW -> the_reply_is_reviewed()
       :: calls_the_model && state != COMPACT -> the_model_is_called()
       :: state == TOOL_EXEC -> the_calls_run()
       :: state == PAUSED && inbox != 0 -> the_driver_takes_the_answer()
       :: over -> something_comes_late()
       fi;
       if
       :: event != 0 ->
          before = state;
          take_the_first_row_that_holds();
          d_step {
            if
            :: row == 0 && !over -> unaccepted = true; printf("refused %d\n", event)
            :: row == 0 && over -> skip                     /* after the end, a refusal is right */
            :: else -> printf("row %d\n", row); the_row_is_followed()
            fi;
            the_event_is_forgotten()
          }
       :: else
       fi;
       !unaccepted                                          /* no row accepts the event: the driver is stuck */
     }
  od
}

/* A person answers or leaves. The choice is free, so fairness forces an action, but not a certain one. */
active proctype person() {
end_of_questions:
  do
  :: atomic {
       state == PAUSED && inbox == 0 ->
       if
       :: waiting > asking + asking_counted -> if :: inbox = goes_on :: inbox = stops fi
       :: waiting <= asking + asking_counted -> if :: inbox = grants :: inbox = denies fi
       :: inbox = leaves
       :: inbox = supersedes
       fi
     }
  od
}

/* Others: listeners reconnect, answers come twice, messages wait for the next step. They can act for ever and change
 * nothing, so without fairness a turn need not end. They would also hide a deadlock, so the search for deadlocks leaves
 * them out. */
#ifndef NOBODY_ELSE
active proctype others() {
  do
  :: inbox = inbox
  od
}
#endif

/* ---- What is claimed --------------------------------------------------------------------------------------------
 *
 * A round of the driver is atomic. A claim reads the turn before and after it, as a reader of the journal does.
 */

ltl ends                       { <> over }
ltl stays_ended                { [] (state == FINISHED -> [] (state == FINISHED)) &&
                                 [] (state == SYNTHESIS_DONE -> [] (state == SYNTHESIS_DONE)) &&
                                 [] (state == CAP_HIT -> [] (state == CAP_HIT)) &&
                                 [] (state == DOOM_LOOP -> [] (state == DOOM_LOOP)) &&
                                 [] (state == ABORTED -> [] (state == ABORTED)) &&
                                 [] (state == FAILED -> [] (state == FAILED)) }
ltl steps_within_allowance     { [] (steps <= allowance) }
ltl calls_within_budget        { [] (calls <= budget && !overspent) }
ltl model_calls_within_formula { [] (model_calls <= most_model_calls) }
ltl no_step_on_a_spent_budget  { [] !began_on_spent }
ltl asked_again_once           { [] !asked_too_often }
ltl nothing_is_overdrawn       { [] !overdrawn }
ltl nothing_follows_an_answer  { [] !went_on }
ltl closed_steps_are_settled   { [] (open_calls == 0 || state == TOOL_EXEC || state == PAUSED ||
                                     state == REVIEW) }
ltl every_event_finds_a_row    { [] !unaccepted }
ltl reasons_fit_their_outcomes { [] ((state == FINISHED -> reason == why_answered || reason == why_text_only ||
                                                           reason == why_truncated) &&
                                     (state == SYNTHESIS_DONE -> reason == why_synthesized) &&
                                     (state == CAP_HIT -> reason == why_step_cap || reason == why_budget ||
                                                          reason == why_tokens || reason == why_cost ||
                                                          reason == why_deadline || reason == why_no_call_ran) &&
                                     (state == DOOM_LOOP -> reason == why_doom_loop) &&
                                     (state == ABORTED -> reason == why_aborted || reason == why_superseded) &&
                                     (state == FAILED -> reason == why_model_error || reason == why_empty_reply ||
                                                         reason == why_invalid_output || reason == why_guardrail ||
                                                         reason == why_content_filter || reason == why_crashed ||
                                                         reason == why_context_overflow || reason == why_engine_error)) }

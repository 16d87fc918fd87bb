PRAGMA user_version=1;
BEGIN TRANSACTION;
CREATE TABLE facts (
    turn_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (turn_id, seq)
) WITHOUT ROWID;
INSERT INTO "facts" VALUES('t-a',1,'turn_started','{"v":1,"elapsed":0.0,"state":"CHECK","hash":"5c3a2373","prompt":"é 🙂","limits":{"steps":null,"ceiling":200,"concluding":"after","tool_calls":50,"calls_a_step":32,"tokens":null,"cost":null,"seconds":null,"doom_threshold":3,"doom_response":"stop","nudges":0,"max_retries":3,"max_pauses":100,"conclude_seconds":30.0,"conclude_tokens":1024},"session":"s2","model":"","agent":{},"history":[],"synthesis":false,"parent_turn":null,"parent_call":null,"depth":0,"continues":null,"forked_from":null,"forked_at":null,"context":{},"chart":1}',1700000106.0);
INSERT INTO "facts" VALUES('t-a',2,'step_started','{"v":1,"elapsed":0.0,"state":"STREAM","hash":"623cec87","number":1}',1700000106.0);
INSERT INTO "facts" VALUES('t-a',3,'model_replied','{"v":1,"elapsed":0.5,"state":"TOOL_EXEC","hash":"64cc218f","calls":[{"id":"call00001","name":"delete_file","arguments":{},"key":"1b55ebaafa68"}]}',1700000108.0);
INSERT INTO "facts" VALUES('t-a',4,'notice','{"v":1,"elapsed":0.5,"state":"TOOL_EXEC","hash":"7850f5eb","limit":"usage_unknown"}',1700000108.0);
INSERT INTO "facts" VALUES('t-a',5,'call_waiting','{"v":1,"elapsed":0.5,"state":"TOOL_EXEC","hash":"bc329283","call":"call00001","interrupt":{"id":"approval-1","kind":"approval","call":"call00001","tool":"delete_file"}}',1700000108.0);
INSERT INTO "facts" VALUES('t-a',6,'paused','{"v":1,"elapsed":0.5,"state":"PAUSED","hash":"056f2da9"}',1700000108.0);
INSERT INTO "facts" VALUES('t-b',1,'turn_started','{"v":1,"elapsed":0.0,"state":"CHECK","hash":"5c3a2373","prompt":"hi","limits":{"steps":null,"ceiling":200,"concluding":"after","tool_calls":50,"calls_a_step":32,"tokens":null,"cost":null,"seconds":null,"doom_threshold":3,"doom_response":"stop","nudges":0,"max_retries":3,"max_pauses":100,"conclude_seconds":30.0,"conclude_tokens":1024},"session":"s2","model":"","agent":{},"history":[],"synthesis":false,"parent_turn":null,"parent_call":null,"depth":0,"continues":null,"forked_from":null,"forked_at":null,"context":{},"chart":1}',1700000103.0);
INSERT INTO "facts" VALUES('t-b',2,'step_started','{"v":1,"elapsed":0.0,"state":"STREAM","hash":"623cec87","number":1}',1700000103.0);
INSERT INTO "facts" VALUES('t-b',3,'model_replied','{"v":1,"elapsed":1.25,"state":"STREAM","hash":"623cec87","text":"it''s done"}',1700000105.0);
INSERT INTO "facts" VALUES('t-b',4,'notice','{"v":1,"elapsed":1.25,"state":"STREAM","hash":"74cae980","limit":"usage_unknown"}',1700000105.0);
INSERT INTO "facts" VALUES('t-b',5,'step_finished','{"v":1,"elapsed":1.25,"state":"STREAM","hash":"23474119","number":1,"usage":{},"seconds":1.25}',1700000105.0);
INSERT INTO "facts" VALUES('t-b',6,'halted','{"v":1,"elapsed":1.25,"state":"FINISHED","hash":"947ee0f7","outcome":"finished","reason":"answered"}',1700000105.0);
INSERT INTO "facts" VALUES('a-late',1,'turn_started','{"v":1,"elapsed":0.0,"state":"CHECK","hash":"5c3a2373","prompt":"hi","limits":{"steps":null,"ceiling":200,"concluding":"after","tool_calls":50,"calls_a_step":32,"tokens":null,"cost":null,"seconds":null,"doom_threshold":3,"doom_response":"stop","nudges":0,"max_retries":3,"max_pauses":100,"conclude_seconds":30.0,"conclude_tokens":1024},"session":"s1","model":"","agent":{},"history":[],"synthesis":false,"parent_turn":null,"parent_call":null,"depth":0,"continues":null,"forked_from":null,"forked_at":null,"context":{},"chart":1}',1700000100.0);
INSERT INTO "facts" VALUES('a-late',2,'step_started','{"v":1,"elapsed":0.0,"state":"STREAM","hash":"623cec87","number":1}',1700000100.0);
INSERT INTO "facts" VALUES('a-late',3,'model_replied','{"v":1,"elapsed":0.5,"state":"TOOL_EXEC","hash":"ea9dc975","calls":[{"id":"call00001","name":"read_file","arguments":{"n":1},"key":"0772cf2726aa"}],"usage":{"input_tokens":3,"cost":0.1}}',1700000102.0);
CREATE TABLE inbox (
    turn_id TEXT NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    payload TEXT NOT NULL,
    at REAL NOT NULL,
    PRIMARY KEY (turn_id, id)
) WITHOUT ROWID;
INSERT INTO "inbox" VALUES('t-a','a','answer','{"text": "no"}',1700000090.0);
INSERT INTO "inbox" VALUES('t-a','b','answer','{"text": "no"}',1700000090.0);
INSERT INTO "inbox" VALUES('t-a','z','answer','{"text": "it''s"}',1700000109.0);
INSERT INTO "inbox" VALUES('a-late','abort','abort','{}',1700000111.0);
CREATE TABLE turns (
    turn_id TEXT PRIMARY KEY,
    session TEXT,
    agent TEXT NOT NULL,
    model TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    epoch INTEGER NOT NULL,
    owner TEXT,
    state TEXT NOT NULL,
    reason TEXT,
    steps INTEGER NOT NULL,
    tool_calls INTEGER NOT NULL,
    live INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO "turns" VALUES('t-a','s2','Tidier','scripted',1699999940.0,1700000107.0,2,NULL,'PAUSED',NULL,1,0,1);
INSERT INTO "turns" VALUES('t-b','s2','Tidier','scripted',1699999940.0,1700000104.0,1,NULL,'FINISHED','answered',1,0,0);
INSERT INTO "turns" VALUES('a-late','s1','Tidier','scripted',1700000000.0,1700000101.0,1,'4711-0123456789ab','TOOL_EXEC',NULL,1,0,1);
CREATE INDEX turns_by_session ON turns (session, created_at);
CREATE UNIQUE INDEX one_live_turn_a_session ON turns (session) WHERE live = 1 AND session IS NOT NULL;
CREATE INDEX turns_by_time ON turns (created_at);
COMMIT;

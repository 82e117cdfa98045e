// What the application does besides: hooks and a function, which Parse Server runs within requests.
"use strict";
const all = { useMasterKey: true };

Parse.Cloud.define("stats", async () => {
    const count = await new Parse.Query("Note").greaterThan("revisions", 0).count(all);
    return { count, at: new Date().toISOString(), token: Math.random() };
});
Parse.Cloud.beforeSave("Note", request => {
    request.object.increment("revisions");
});
Parse.Cloud.afterSave("Note", async request => {
    const board = await new Parse.Query("Board").get(request.object.get("board"), all);
    board.increment("writes");
    await board.save(null, all);
});
if (process.env.CHANGED) {
    Parse.Cloud.beforeFind("Note", request => {
        request.query.limit(2);
    });
}

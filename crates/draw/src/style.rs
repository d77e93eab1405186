//! The style sheet: light colors first, for viewers without media queries, then the dark scheme. In both, text has a
//! contrast of at least 4.5 to 1.

pub(crate) const STYLE_SHEET: &str = "\
text{font-family:-apple-system,BlinkMacSystemFont,\"Segoe UI\",\"Noto Sans\",Helvetica,Arial,sans-serif;font-size:11px;fill:#1f2328}
.ground{fill:#fff;stroke:#d1d9e0}
.title{font-size:20px;font-weight:700}
.intro{font-size:13px;fill:#59636e}
.box{fill:#f6f8fa;stroke:#59636e;stroke-width:1.5}
.inner{fill:none;stroke:#59636e;stroke-width:1}
.ready .box{fill:#ddf4ff;stroke:#0969da}
.rest .box{fill:#fff8e5;stroke:#9a6700}
.final .box{fill:#eaeef2;stroke:#1f2328}
.final .inner{stroke:#1f2328}
.reserved .box{fill:none;stroke-dasharray:5 4}
.divider{stroke:#d1d9e0}
.name{font-size:14px;font-weight:700}
.about{font-size:11.5px;fill:#424a53}
.hint{font-style:italic;fill:#59636e}
.called{font-size:12px;font-weight:700;fill:#0550ae}
.engine{font-size:12px;font-weight:700;font-style:italic;fill:#6639ba}
.timer{font-size:12px;font-weight:700;fill:#953800}
.who{fill:#59636e}
.guard{fill:#1f2328}
.money{fill:#116329}
.effect{fill:#424a53}
.rule{font-size:9.5px;fill:#6a737d}
.icon{fill:#1f2328}
.clock{fill:none;stroke:#953800;stroke-width:1.3}
.wire{fill:none;stroke:#59636e;stroke-width:1.5}
.head{fill:#59636e}
.wire.w-called{stroke:#0969da}.head.w-called{fill:#0969da}
.wire.w-engine{stroke:#8250df}.head.w-engine{fill:#8250df}
.wire.w-timer{stroke:#bc4c00;stroke-dasharray:6 4}.head.w-timer{fill:#bc4c00}
.legend{fill:#59636e}
@media (prefers-color-scheme:dark){
text,.icon,.guard{fill:#e6edf3}
.ground{fill:#0d1117;stroke:#3d444d}
.intro,.hint,.who,.legend{fill:#9198a1}
.box{fill:#161b22;stroke:#9198a1}
.inner{stroke:#9198a1}
.ready .box{fill:#0c2d4d;stroke:#4493f8}
.rest .box{fill:#2e2408;stroke:#d29922}
.final .box{fill:#21262d;stroke:#e6edf3}
.final .inner{stroke:#e6edf3}
.reserved .box{fill:none}
.divider{stroke:#3d444d}
.about,.effect{fill:#c2c9d1}
.called{fill:#79c0ff}
.engine{fill:#d2a8ff}
.timer{fill:#ffa657}
.money{fill:#56d364}
.rule{fill:#8b949e}
.clock{stroke:#ffa657}
.wire{stroke:#9198a1}
.head{fill:#9198a1}
.wire.w-called{stroke:#4493f8}.head.w-called{fill:#4493f8}
.wire.w-engine{stroke:#ab7df8}.head.w-engine{fill:#ab7df8}
.wire.w-timer{stroke:#f0883e}.head.w-timer{fill:#f0883e}
}
";
